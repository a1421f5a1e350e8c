"""Caps on observations, in tokens, with a marker where something is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

from verl_agentic.base.errors import ConfigError

Keep = Literal["head", "tail", "middle"]
KEEPS: tuple[str, ...] = get_args(Keep)
CHARS_PER_TOKEN = 8
"""So much text is looked at for each token that is kept; natural text has about half as many."""
_MOST_TOKENS_PER_CHAR = 4  # bytes of a character
_LEAST_TOKENS = 16  # looked at, even where nothing is kept: what is cut is estimated from it
_HALF_A_CHARACTER = "\ufffd"


class TextTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    @property
    def eos_token_id(self) -> Any: ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> Sequence[int]: ...

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool = ...) -> str: ...


def clip(text: str, *, max_tokens: int, keep: Keep, tokenizer: TextTokenizer) -> tuple[str, bool]:
    """Returns the text with at most `max_tokens` tokens of it left, and whether something was cut.

    Only the ends of a long text are encoded; how many tokens were cut from it is then an estimate.

    Args:
        text: an observation; halves of surrogate pairs, which nothing can encode, become question marks.
        max_tokens: the cap; the marker that stands for what is missing comes on top.
        keep: which part is kept: its head, its tail, or both ends (`middle` is what is cut then).
        tokenizer: counts.

    Raises:
        ConfigError: an unknown `keep`.
    """
    if keep not in KEEPS:
        raise ConfigError(f"unknown part of an observation to keep, got {keep!r}; use one of {list(KEEPS)}")
    text = encodable(text)
    if len(text) * _MOST_TOKENS_PER_CHAR <= max_tokens:
        return text, False
    kept_head = {"head": max_tokens, "tail": 0, "middle": max_tokens // 2}[keep]
    head, tail, hidden = _encode_ends(text, kept_head=kept_head, kept_tail=max_tokens - kept_head, tokenizer=tokenizer)
    cut = len(head) + len(tail) + hidden - max_tokens
    if cut <= 0 and not hidden:
        return text, False
    marker = f"[... {'about ' * bool(hidden)}{cut} tokens cut ...]"
    if not hidden:
        head, tail = head[:kept_head], head[len(head) - (max_tokens - kept_head) :]
    front = _decode_ids(tokenizer, head[:kept_head]).rstrip(_HALF_A_CHARACTER)
    back = _decode_ids(tokenizer, tail[len(tail) - (max_tokens - kept_head) :]).lstrip(_HALF_A_CHARACTER)
    return "\n".join(part for part in (front, marker, back) if part), True


def encodable(text: str) -> str:
    """Returns the text without halves of surrogate pairs, which no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _encode_ends(
    text: str, *, kept_head: int, kept_tail: int, tokenizer: TextTokenizer
) -> tuple[Sequence[int], Sequence[int], int]:
    """Returns tokens of the head, of the tail, and about how many lie between; a text that is looked at as a whole is
    all head."""
    reach = CHARS_PER_TOKEN
    while True:
        at_head, at_tail = (reach * max(num_kept, _LEAST_TOKENS) for num_kept in (kept_head, kept_tail))
        if at_head + at_tail >= len(text):
            return _encode_text(tokenizer, text), (), 0
        head, tail = _encode_text(tokenizer, text[:at_head]), _encode_text(tokenizer, text[len(text) - at_tail :])
        if len(head) >= kept_head and len(tail) >= kept_tail:
            hidden_chars = len(text) - at_head - at_tail
            per_char = (len(head) + len(tail)) / (at_head + at_tail)
            return head, tail, max(1, round(hidden_chars * per_char))
        reach *= CHARS_PER_TOKEN


def _encode_text(tokenizer: TextTokenizer, text: str) -> Sequence[int]:
    return tokenizer.encode(text, add_special_tokens=False) if text else ()


def _decode_ids(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False) if len(ids) else ""
