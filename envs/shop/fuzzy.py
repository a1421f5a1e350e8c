"""Similarity of short texts by their words."""

from __future__ import annotations

import re


def token_set_ratio(left: str, right: str) -> float:
    """Returns the similarity of two texts as sets of words, from 0 to 100; 100 if one has all words of the other.

    The shared words are compared with each text's sorted words, and those with each other; the best ratio counts. The
    ratio is `200 * LCS / (length + length)`, with the longest common subsequence.
    """
    ours, theirs = set(_split_words(left)), set(_split_words(right))
    shared = ours & theirs
    if not ours or not theirs:
        return 0.0
    if shared and shared in (ours, theirs):
        return 100.0
    base = " ".join(sorted(shared))
    first, second = (" ".join([base, *sorted(words - shared)]).strip() for words in (ours, theirs))
    pairs = [(first, second), *([(base, first), (base, second)] if shared else [])]
    return max(200.0 * _count_common(a, b) / (len(a) + len(b)) for a, b in pairs)


def _split_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _count_common(left: str, right: str) -> int:
    """Returns the length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for char in left:
        before = 0
        for place, other in enumerate(right, start=1):
            before, row[place] = row[place], before + 1 if char == other else max(row[place], row[place - 1])
    return row[-1]
