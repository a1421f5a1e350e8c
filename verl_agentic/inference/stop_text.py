"""Finds stop texts in sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def tokens_before_stop(tokenizer: Any, new_ids: Sequence[int], stop: Sequence[str]) -> int | None:
    """Returns the number of tokens before the first one that overlaps a stop text; None without a stop text.

    Called after every token, so it only looks for a text that the newest token completes.

    Args:
        tokenizer: decodes ids.
        new_ids: all sampled ids.
        stop: the texts.
    """
    # A token has at least one byte, so a text spans no more tokens than it has bytes; the margin is for tokens that
    # decode to a placeholder because their character begins further left.
    first = max(0, len(new_ids) - max(len(text.encode()) for text in stop) - 4)
    tail = tokenizer.decode(new_ids[first:])
    hits = [text for text in stop if text in tail]
    if not hits:
        return None
    return min(_begin(tokenizer, new_ids, text, first) for text in hits)


def _begin(tokenizer: Any, new_ids: Sequence[int], text: str, first: int) -> int:
    for at in range(len(new_ids) - 1, first, -1):
        if text in tokenizer.decode(new_ids[at:]):
            return at
    return first
