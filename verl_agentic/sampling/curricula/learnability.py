"""Prompts that the policy solves about half of the time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


def variance(rates_N: Floats) -> Floats:
    """Returns p (1 - p), the variance of one attempt."""
    return rates_N * (1.0 - rates_N)


def tent(rates_N: Floats) -> Floats:
    """Returns 1 - 2 |p - 1/2|."""
    return 1.0 - 2.0 * np.abs(rates_N - 0.5)


_SHAPES: dict[str, Callable[[Floats], Floats]] = {"variance": variance, "tent": tent}


@curriculum(revisits=True)
def learnability(pool: Pool, *, shape: str = "variance") -> Floats:
    """Returns weights that are highest for prompts with a pass rate p of 1/2, and 0 at 0 and 1.

    Prompts at 0 or 1 are still drawn with the share `agentic.curriculum.floor`. Rates are estimates (`PassRates`). New
    prompts have 1/2, so they come first. Drawing in proportion to these weights is our design.

    Args:
        shape: `variance`, p(1-p), or `tent`, 1 - 2|p - 1/2|.

    Raises:
        ConfigError: unknown `shape`.
    """
    if shape not in _SHAPES:
        raise ConfigError(f"learnability.shape must be one of {sorted(_SHAPES)}, got {shape!r}")
    return _SHAPES[shape](np.clip(pool.rates.mean_N, 0.0, 1.0))
