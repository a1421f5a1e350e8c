"""A substitute tokenizer for token counts: four bytes per token, which is about right for English text."""

from __future__ import annotations

from collections.abc import Sequence

_WIDTH = 4


class ByteTokenizer:
    """Converts text to ids and back without loss. The ids have no meaning for models."""

    eos_token_id = 0
    all_special_tokens: Sequence[str] = ()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Returns one id per four bytes; never adds special tokens."""
        data = text.encode("utf-8", "surrogatepass")
        # The leading 1 preserves zero bytes and the length.
        return [int.from_bytes(b"\x01" + data[start : start + _WIDTH], "big") for start in range(0, len(data), _WIDTH)]

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool = False) -> str:
        """Returns the text of ids; unknown ids and incomplete characters become U+FFFD."""
        data = b"".join(self._decode_bytes(token) for token in token_ids if token != self.eos_token_id)
        return data.decode("utf-8", "replace")

    @staticmethod
    def _decode_bytes(token: int) -> bytes:
        data = token.to_bytes(max(1, (token.bit_length() + 7) // 8), "big")
        return data[1:] if data[0] == 1 else b"\xef\xbf\xbd"
