"""Stepwise progress attribution (SPA): rewards from each turn's contribution to the outcome.

An estimator gives the contribution of each turn. It is trained on finished episodes so that contributions sum to the
outcome; `squared_error` is the loss, also for tensors. The estimator may return `renormalised` contributions.

Paper: https://arxiv.org/abs/2505.20732
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from verl_agentic.rewards.answers.tool_calls import was_carried_out
from verl_agentic.rewards.sample import Sample, Turn


class ProgressEstimator(Protocol):
    """Estimates each turn's contribution to the outcome."""

    def __call__(self, sample: Sample, /) -> Sequence[float]:
        """Returns the contribution of each turn, in order; their sum approximates the outcome."""
        ...


def is_grounded(turn: Turn) -> bool:
    """Returns whether the environment carried out a call of the turn."""
    return bool(turn.calls) and all(was_carried_out(call) for call in turn.calls)


def fused(
    contributions: Sequence[float], grounded: Sequence[bool], *, alpha: float = 1.0, beta: float = 0.5
) -> list[float]:
    """Returns the reward of each turn: alpha * contribution + beta * grounded.

    Args:
        contributions: the estimator's value per turn.
        grounded: whether each turn's action was carried out.
        alpha: weight of the contribution; 1 in the paper's code.
        beta: weight of a grounded action, 0.5 in the paper's code.
    """
    return [alpha * c + beta * float(g) for c, g in zip(contributions, grounded, strict=True)]


def squared_error(contributions: Sequence[float], outcome: float) -> float:
    """Returns an estimator's loss on one episode: (sum of contributions - outcome) ** 2."""
    return (sum(contributions) - outcome) ** 2


def renormalised(contributions: Sequence[float], outcome: float) -> list[float]:
    """Returns the contributions scaled to sum to the outcome; equal shares if they sum to 0."""
    total = sum(contributions)
    if not total:
        return [outcome / len(contributions) for _ in contributions]
    return [outcome * c / total for c in contributions]
