"""Bounded sums of turn rewards."""

from __future__ import annotations

from collections.abc import Iterable

from verl_agentic.rewards.component import Graded


def clip_total(payments: Iterable[tuple[int, float]], *, low: float, high: float) -> Graded:
    """Returns turn rewards whose sum is that of all payments, clipped to [low, high].

    A payment counts only as far as it moves the clipped running sum.

    Args:
        payments: turn index and amount, in the order of turns.
        low: at most 0.
        high: at least 0.
    """
    total, paid = 0.0, 0.0
    turns: dict[int, float] = {}
    for turn, amount in payments:
        total += amount
        clipped = min(max(total, low), high)
        if clipped != paid:
            turns[turn] = turns.get(turn, 0.0) + clipped - paid
        paid = clipped
    return Graded(value=paid, turns=turns)
