"""VSPO: prompts by how much is left to gain, times how much attempts at them differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.pass_rates import Floats


def task_values(mean_N: Floats, std_N: Floats, *, max_reward: float = 1.0) -> Floats:
    """Returns `(max_reward - mean) * std`, std of the population; 0 where all attempts got the same.

    For outcomes 0 and 1 it is greatest at a pass rate of 1/4, not 1/2.
    """
    return np.maximum(0.0, max_reward - mean_N) * std_N


@curriculum(revisits=True)
def value(pool: Pool, *, max_reward: float = 1.0) -> Floats:
    """Returns VSPO's value of every prompt, over the attempts that the table of pass rates remembers.

    VSPO computes the value of a group that was just played and replaces groups of a batch (`replace_worthless`); here
    it steers which prompts are drawn next. Prompts not seen yet have the value of an even coin.

    Args:
        max_reward: the greatest outcome there is.

    Raises:
        ConfigError: not above 0.

    Paper: https://arxiv.org/abs/2512.07478 (the formula after a summary by others; the paper was not at hand)
    """
    if max_reward <= 0:
        raise ConfigError(f"value.max_reward must be above 0, got {max_reward}")
    return task_values(pool.rates.mean_N, pool.rates.std_N, max_reward=max_reward)


def replace_worthless(values_P: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns for every group of a batch which one to train on: itself, or in place of a worthless one a random other.

    Those others are drawn with probabilities in proportion to their values. Without any group of value, all stay.
    """
    chosen = np.arange(len(values_P))
    worthless = values_P <= 0
    if worthless.any() and not worthless.all():
        chosen[worthless] = rng.choice(len(values_P), size=int(worthless.sum()), p=values_P / values_P.sum())
    return chosen


def smoothing(chosen_P: NDArray[np.int64]) -> Floats:
    """Returns what to multiply the advantages of every chosen group with: 1 / (how often it was chosen).

    Our design of the "value smoothing" of the paper: a group that was chosen thrice weighs as much as one.
    """
    return 1.0 / np.bincount(chosen_P)[chosen_P]
