"""From characters to tokens: which tokens of a turn lie between two texts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any


def tokens_between(tokenizer: Any, token_ids: Sequence[int], opening: str, closing: str) -> list[tuple[int, int]]:
    """Returns the `[start, end)` offsets of the tokens between `opening` and `closing`, at every place.

    Tokens that hold a part of one of the two texts are not among them. Where the closing text is missing, all tokens
    to the end are.
    """
    ids = list(token_ids)
    text = tokenizer.decode(ids)
    reach = _Reach(tokenizer, ids)
    spans, start = [], text.find(opening)
    while start >= 0:
        begin = start + len(opening)
        closed_at = text.find(closing, begin)
        end = closed_at if closed_at >= 0 else len(text)
        first = bisect_left(reach, begin)
        last = bisect_right(reach, end) - 1
        if first < last:
            spans.append((first, last))
        start = text.find(opening, end) if closed_at >= 0 else -1
    return spans


class _Reach(Sequence[int]):
    """At `k`: how many characters the first `k` tokens hold completely. Never falls, so it can be searched."""

    def __init__(self, tokenizer: Any, token_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = token_ids

    def __len__(self) -> int:
        return len(self._ids) + 1

    def __getitem__(self, count: Any) -> Any:
        # A character that is not complete yet decodes to a placeholder, with some tokenizers to one for each byte.
        return len(self._tokenizer.decode(self._ids[:count]).rstrip("\ufffd"))
