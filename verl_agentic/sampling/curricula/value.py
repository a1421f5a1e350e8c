"""VSPO: prompts by how much is left to gain, times how much attempts at them differ."""

from __future__ import annotations

import numpy as np

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


def task_values(mean_N: Floats, std_N: Floats, *, max_reward: float = 1.0) -> Floats:
    """Returns `(max_reward - mean) * std`, std of the population; 0 where all attempts got the same.

    For outcomes 0 and 1 it is greatest at a pass rate of 1/4, not 1/2.
    """
    return np.maximum(0.0, max_reward - mean_N) * std_N


@curriculum(revisits=True)
def value(pool: Pool, *, max_reward: float = 1.0) -> Floats:
    """Returns VSPO's value of every prompt, over the attempts that the table of pass rates remembers.

    VSPO computes the value of a group that was just played and replaces groups of a batch, as the replay of gated
    buffers does with `weight: value`; here it steers which prompts are drawn next. Prompts not seen yet have the value
    of an even coin.

    Args:
        max_reward: the greatest outcome there is.

    Raises:
        ConfigError: not above 0.

    Paper: https://arxiv.org/abs/2512.07478 (the formula after a summary by others; the paper was not at hand)
    """
    if max_reward <= 0:
        raise ConfigError(f"value.max_reward must be above 0, got {max_reward}")
    return task_values(pool.rates.mean_N, pool.rates.std_N, max_reward=max_reward)
