"""A penalty that grows linearly beyond a target length."""

from __future__ import annotations

from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import Unit, length


def linear_penalty(steps: float, *, target: float, per_step: float, max_penalty: float) -> float:
    """Returns -min(per_step * max(0, steps - target), max_penalty)."""
    return -min(per_step * max(0.0, steps - target), max_penalty)


@component(low=lambda max_penalty: -max_penalty, high=0.0, inline=True)
def length_linear(
    sample: Sample, *, target: float = 10, per_step: float = 0.05, max_penalty: float = 0.2, unit: Unit = "turns"
) -> float:
    """Returns -per_step * max(0, T - target), at least -max_penalty.

    Args:
        target: maximum T without a penalty.
        per_step: penalty per unit beyond the target.
        max_penalty: maximum penalty. Without it, a success with 30 extra turns is worth less than a well-formed
            failure.
        unit: unit of T: the policy's turns, calls or tokens (tool output never counts).
    """
    return linear_penalty(length(sample, unit), target=target, per_step=per_step, max_penalty=max_penalty)
