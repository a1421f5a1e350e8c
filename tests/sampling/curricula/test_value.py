"""VSPO: the vectors, replacement of worthless groups, smoothing."""

from __future__ import annotations

import numpy as np
import pytest

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.curricula.value import replace_worthless, smoothing, task_values, value
from verl_agentic.sampling.curriculum import Pool
from verl_agentic.sampling.pass_rates import PassRates

GROUPS = [[1.0] * passes + [0.0] * (5 - passes) for passes in range(6)]
VALUES = [0.0, 0.32, 0.293939, 0.195959, 0.08, 0.0]
SHARES = [0.0, 0.359592, 0.330306, 0.220204, 0.089898, 0.0]


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
    with pytest.raises(ConfigError, match="max_reward must be above 0"):
        value(Pool(rates=table()), max_reward=0.0)


def test_worthless_groups_are_replaced_by_others_in_proportion_to_their_values() -> None:
    rng = np.random.default_rng(0)
    chosen = np.array([replace_worthless(np.array(VALUES), rng) for _ in range(4000)])
    assert (chosen[:, 1:5] == [1, 2, 3, 4]).all()
    found = np.bincount(chosen[:, [0, 5]].ravel(), minlength=6) / 8000
    assert found == pytest.approx(SHARES, abs=0.03)  # 5 standard errors
    assert replace_worthless(np.zeros(3), rng).tolist() == [0, 1, 2]
    assert replace_worthless(np.ones(3), rng).tolist() == [0, 1, 2]


def test_a_group_that_is_used_thrice_weighs_as_much_as_one() -> None:
    assert smoothing(np.array([1, 1, 2, 1])).tolist() == pytest.approx([1 / 3, 1 / 3, 1, 1 / 3])
