"""A penalty that grows smoothly with the length."""

from __future__ import annotations

import math

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import Unit, length


def sigmoid_factor(steps: float, *, target: float, scale: float) -> float:
    """Returns 1 / (1 + exp((steps - target) / scale)): 0.5 at the target, 1 far below it, 0 far beyond."""
    # tanh cannot overflow, exp can.
    return 0.5 - 0.5 * math.tanh((steps - target) / (2.0 * scale))


def _check_options(scale: float) -> None:
    if not scale > 0:
        raise ConfigError(f"length_sigmoid.scale must be greater than 0, got {scale}")


@component(low=-1.0, high=0.0, inline=True, check=_check_options)
def length_sigmoid(sample: Sample, *, target: float = 10, scale: float = 5, unit: Unit = "turns") -> float:
    """Returns sigmoid(-(T - target) / scale) - 1.

    The original form multiplies the outcome r by the sigmoid: r * s = r + r * (s - 1). For outcomes of 0 or 1, use this
    term with `only_if` the outcome is 1. It halves the reward at the target and removes almost all of it beyond, so
    give it a weight or cap below the outcome.

    Args:
        target: T at which it is -0.5.
        scale: width of the sigmoid, in units of T.
    """
    return sigmoid_factor(length(sample, unit), target=target, scale=scale) - 1.0
