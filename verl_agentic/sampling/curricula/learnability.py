"""Prompts that the policy solves about half of the time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


def variance(rates_N: Floats) -> Floats:
    """Returns p (1 - p): the variance of one attempt, and so how much a group is expected to disagree."""
    return rates_N * (1.0 - rates_N)


def tent(rates_N: Floats) -> Floats:
    """Returns 1 - 2 |p - 1/2|, which falls off in straight lines."""
    return 1.0 - 2.0 * np.abs(rates_N - 0.5)


_SHAPES: dict[str, Callable[[Floats], Floats]] = {"variance": variance, "tent": tent}


@curriculum(revisits=True)
def learnability(pool: Pool, *, shape: str = "variance") -> Floats:
    """Returns weights that are greatest for prompts with a pass rate p of 1/2, and 0 at 0 and 1.

    A prompt at 0 or 1 is still drawn with the share `agentic.curriculum.floor`, or it would never be seen again. The
    rates are estimates (`PassRates`); prompts not seen yet have 1/2, so that they come first. Both shapes stand in the
    seed; that the drawn share is proportional to them is our design, no paper's value.

    Args:
        shape: `variance`, p(1-p), or `tent`, 1 - 2|p - 1/2|.

    Raises:
        ConfigError: unknown shape.
    """
    if shape not in _SHAPES:
        raise ConfigError(f"learnability.shape must be one of {sorted(_SHAPES)}, got {shape!r}")
    return _SHAPES[shape](np.clip(pool.rates.mean_N, 0.0, 1.0))
