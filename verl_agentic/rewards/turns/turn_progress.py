"""Stepwise progress attribution (SPA): what each turn contributed to the outcome, and the reward made of it.

An estimator says what each turn contributed. It is trained on finished episodes so that the contributions of one
episode add up to its outcome; `squared_error` is that loss, also of tensors. Where they do not quite, it may return
them `renormalised`.

Paper: https://arxiv.org/abs/2505.20732
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from verl_agentic.rewards.sample import Sample, Turn
from verl_agentic.rewards.tool_calls.calls import was_carried_out


class ProgressEstimator(Protocol):
    """Estimates what each turn contributed to the outcome."""

    def __call__(self, sample: Sample, /) -> Sequence[float]:
        """Returns the contribution of each turn, in order; they add up to about the outcome."""
        ...


def is_grounded(turn: Turn) -> bool:
    """Returns whether the environment could carry out what the turn asked for; a turn without a call asked nothing."""
    return bool(turn.calls) and all(was_carried_out(call) for call in turn.calls)


def fused(
    contributions: Sequence[float], grounded: Sequence[bool], *, alpha: float = 1.0, beta: float = 0.5
) -> list[float]:
    """Returns the reward of each turn: alpha * contribution + beta * grounded.

    Args:
        contributions: of each turn, from the estimator.
        grounded: whether each turn's action could be carried out.
        alpha: weight of the contribution. The paper leaves it open; 1 is what its code comes to.
        beta: weight of a grounded action, 0.5 in the paper's code.
    """
    return [alpha * c + beta * float(g) for c, g in zip(contributions, grounded, strict=True)]


def squared_error(contributions: Sequence[float], outcome: float) -> float:
    """Returns an estimator's loss on one episode: (sum of contributions - outcome) ** 2."""
    return (sum(contributions) - outcome) ** 2


def renormalised(contributions: Sequence[float], outcome: float) -> list[float]:
    """Returns the contributions scaled to add up to the outcome; equal shares where they add up to 0."""
    total = sum(contributions)
    if not total:
        return [outcome / len(contributions) for _ in contributions]
    return [outcome * c / total for c in contributions]
