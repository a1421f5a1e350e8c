"""A length penalty for failures only."""

from __future__ import annotations

from verl_agentic.base.errors import ScoringError
from verl_agentic.rewards.component import component
from verl_agentic.rewards.components.length_linear import length_linear
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import Unit


@component(low=lambda max_penalty: -max_penalty, high=0.0, inline=True)
def length_on_failure(
    sample: Sample,
    *,
    target: float = 10,
    per_step: float = 0.05,
    max_penalty: float = 0.2,
    unit: Unit = "turns",
    solved_at: float = 1.0,
) -> float:
    """Returns -per_step * max(0, T - target), at least -max_penalty, for a failure; 0 for a success.

    Args:
        target, per_step, max_penalty, unit: see `length_linear`.
        solved_at: minimum outcome of a success.

    Raises:
        ScoringError: the environment did not score this episode.
    """
    if sample.env is None:
        raise ScoringError("the environment gave no outcome, so a failure cannot be told; use length_linear instead")
    if sample.env.outcome >= solved_at:
        return 0.0
    return length_linear.function(sample, target=target, per_step=per_step, max_penalty=max_penalty, unit=unit)
