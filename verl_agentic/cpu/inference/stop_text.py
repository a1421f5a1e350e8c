"""Finds stop texts in sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_UNKNOWN, _NEVER, _MAYBE = 0, 1, 2
_MAX_TABLES = 64
_ALWAYS = 1
"""Key of texts beyond the table's room: every token is a candidate."""


class StopFilter:
    """Names the tokens that can complete a stop text, so that only rows with such a token are decoded.

    The token that completes a text holds the text's last character, or a part of it where tokens split characters.
    Every id is decoded once, when it is first sampled.
    """

    def __init__(self, tokenizer: Any, *, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._keys: dict[frozenset[str], int] = {}
        self._states = np.full((_ALWAYS + 1, vocab_size), _MAYBE, dtype=np.int8)

    def add_stops(self, stop: Sequence[str]) -> int:
        """Returns the key of a request's stop texts; 0 without any."""
        ends = frozenset(text[-1] for text in stop)
        # A tokenizer that removes spaces can complete a text whose last character came earlier.
        if not ends or getattr(self._tokenizer, "clean_up_tokenization_spaces", False):
            return _ALWAYS if ends else 0
        if ends not in self._keys:
            if len(self._keys) == _MAX_TABLES:
                return _ALWAYS
            self._keys[ends] = len(self._states)
            self._states = np.concatenate([self._states, np.zeros_like(self._states[:1])])
        return self._keys[ends]

    def find_candidates(self, keys_B: np.ndarray, ids_B: np.ndarray) -> np.ndarray:
        """Returns the rows whose newest id can complete one of their texts."""
        rows = np.flatnonzero(keys_B)
        keys, ids = keys_B[rows], ids_B[rows]
        is_unknown = self._states[keys, ids] == _UNKNOWN
        for key, token in {*zip(keys[is_unknown].tolist(), ids[is_unknown].tolist(), strict=True)}:
            self._states[key, token] = self._classify_token(key, token)
        return rows[self._states[keys, ids] == _MAYBE]

    def _classify_token(self, key: int, token: int) -> int:
        ends = next(ends for ends, other in self._keys.items() if other == key)
        # Twice, because some tokenizers drop the space at the beginning of a text.
        text = self._tokenizer.decode([token, token])
        return _MAYBE if not text or "\ufffd" in text or any(end in text for end in ends) else _NEVER


def tokens_before_stop(tokenizer: Any, new_ids: Sequence[int] | np.ndarray, stop: Sequence[str]) -> int | None:
    """Returns the number of tokens before the first one that overlaps a stop text; None without a stop text.

    Called after every token that can complete a text, so it only looks for a text that the newest token completes.

    Args:
        tokenizer: decodes ids.
        new_ids: all sampled ids.
    """
    # A token has at least one byte, so a text spans no more tokens than it has bytes; the margin is for tokens that
    # decode to a placeholder because their character begins further left.
    first = max(0, len(new_ids) - max(len(text.encode()) for text in stop) - 4)
    tail_ids = [int(token) for token in new_ids[first:]]
    tail = tokenizer.decode(tail_ids)
    hits = [text for text in stop if text in tail]
    if not hits:
        return None
    return first + min(_find_start(tokenizer, tail_ids, text) for text in hits)


def _find_start(tokenizer: Any, tail_ids: list[int], text: str) -> int:
    """Returns the last index from which the tail still holds the text."""
    for start in range(len(tail_ids) - 1, 0, -1):
        if text in tokenizer.decode(tail_ids[start:]):
            return start
    return 0
