"""Token ids to text, exactly as they were sampled."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

_REMEMBERED_TOKENS = 1_000_000
"""Most tokens whose texts one decoder keeps."""
_decoders: weakref.WeakKeyDictionary[Any, TokenDecoder] = weakref.WeakKeyDictionary()


class TokenDecoder:
    """Decodes token ids, special tokens included and nothing cleaned up. Safe to call from threads.

    It remembers the texts of the last million tokens: a turn is decoded for its parser, and once more for the audit
    and the log at the end of its episode.
    """

    def __init__(self, decode: Callable[[list[int]], str], *, max_tokens: int = _REMEMBERED_TOKENS) -> None:
        self._decode = decode
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._texts: dict[tuple[int, ...], str] = {}
        self._lock = threading.Lock()

    def __call__(self, token_ids: Sequence[int]) -> str:
        """Returns the text of the ids."""
        key = tuple(token_ids)
        text = self._texts.get(key)
        if text is None:
            text = self._decode(list(key))
            with self._lock:
                self._remember_text(key, text)
        return text

    def _remember_text(self, key: tuple[int, ...], text: str) -> None:
        if key in self._texts or len(key) > self._max_tokens:
            return
        self._texts[key] = text
        self._num_tokens += len(key)
        while self._num_tokens > self._max_tokens:
            oldest = next(iter(self._texts))
            del self._texts[oldest]
            self._num_tokens -= len(oldest)


def exact_decoder(tokenizer: Any) -> TokenDecoder:
    """Returns the decoder of a tokenizer, one for all that ask for it.

    transformers converts every id on its own before it decodes, which takes longer than the decoding. So a tokenizer
    whose `decode` is the library's own is asked without that.
    """
    if (decoder := _decoders.get(tokenizer)) is None:
        decoder = _decoders[tokenizer] = TokenDecoder(_make_decoder(tokenizer))
    return decoder


def _make_decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    methods = (getattr(type(tokenizer), name, None) for name in ("decode", "_decode"))
    is_own = all(getattr(m, "__module__", "").startswith("transformers.tokenization_utils") for m in methods)
    if backend is not None and is_own:
        return lambda ids: backend.decode(ids, skip_special_tokens=False)
    reference = weakref.ref(tokenizer)  # a decoder that held its tokenizer would keep both for ever

    def decode(ids: list[int]) -> str:
        alive = reference()
        assert alive is not None
        return alive.decode(ids, clean_up_tokenization_spaces=False)

    return decode
