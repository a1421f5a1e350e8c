"""VSPO: the vectors."""

from __future__ import annotations

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curricula.value import task_values, value
from verl_agentic.sampling.curriculum import Pool
from verl_agentic.sampling.prompts.pass_rates import PassRates

GROUPS = [[1.0] * passes + [0.0] * (5 - passes) for passes in range(6)]
VALUES = [0.0, 0.32, 0.293939, 0.195959, 0.08, 0.0]


def table() -> PassRates:
    rates = PassRates(6, prior_trials=0.0)
    for prompt, outcomes in enumerate(GROUPS):
        rates.record(prompt, outcomes)
    return rates


def test_the_value_of_a_group_is_that_of_the_vectors() -> None:
    mean, std = np.mean(GROUPS, axis=1), np.std(GROUPS, axis=1)
    assert task_values(mean, std) == pytest.approx(VALUES, abs=1e-6)
    assert value(Pool(rates=table())) == pytest.approx(VALUES, abs=1e-6)


def test_it_is_greatest_at_a_quarter_not_at_a_half() -> None:
    p = np.array([0, 0.125, 0.25, 0.5, 0.75, 0.875, 1])
    expected = [0.0, 0.289379, 0.32476, 0.25, 0.108253, 0.04134, 0.0]
    assert task_values(p, np.sqrt(p * (1 - p))) == pytest.approx(expected, abs=1e-6)


def test_the_scale_of_the_rewards_counts() -> None:
    assert task_values(np.array([1.0]), np.array([0.5]), max_reward=2.0) == pytest.approx([0.5])
    assert task_values(np.array([1.0]), np.array([0.5]), max_reward=0.5) == pytest.approx([0.0])
    with pytest.raises(ConfigError, match="max_reward"):
        value(Pool(rates=table()), max_reward=0.0)
