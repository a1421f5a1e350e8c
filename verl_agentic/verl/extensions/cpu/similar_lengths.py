"""Groups of rows of similar length, whose forward passes need little padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_TOKENS_OF_A_PASS = 256
"""Padding that costs about as much as one more pass."""


def groups_of_similar_length(lengths: Sequence[int], *, tokens_of_a_pass: int = _TOKENS_OF_A_PASS) -> list[list[int]]:
    """Returns groups of row numbers, the longest rows first, that cost the fewest padded tokens.

    Args:
        tokens_of_a_pass: cost of a group, in tokens.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    sorted_lengths = np.asarray(lengths)[order]
    # cost[end]: of the first `end` rows. The last of their groups begins at begins[end].
    cost, begins = np.zeros(len(order) + 1), np.zeros(len(order) + 1, dtype=int)
    for end in range(1, len(order) + 1):
        rows = end - np.arange(end)
        totals = cost[:end] + rows * sorted_lengths[:end] + tokens_of_a_pass
        begins[end] = np.argmin(totals)
        cost[end] = totals[begins[end]]
    groups, end = [], len(order)
    while end:
        groups.append(order[begins[end] : end].tolist())
        end = int(begins[end])
    return groups[::-1]
