"""Easy to hard, hard to easy, and only the hard ones."""

from __future__ import annotations

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curricula.easy_to_hard import easy_to_hard
from verl_agentic.sampling.curricula.hard_only import hard_only
from verl_agentic.sampling.curricula.hard_to_easy import hard_to_easy
from verl_agentic.sampling.curriculum import Pool
from verl_agentic.sampling.prompts.pass_rates import PassRates

DIFFICULTY = np.array([0.5, 0.1, 0.9, 0.5, 0.0])


def pool() -> Pool:
    return Pool(rates=PassRates(5), difficulty_N=DIFFICULTY)


def test_difficulty_rises_and_equal_prompts_stay_in_the_order_of_the_data() -> None:
    assert easy_to_hard(pool()).tolist() == [4, 1, 0, 3, 2]


def test_difficulty_falls_and_equal_prompts_stay_in_the_order_of_the_data() -> None:
    assert hard_to_easy(pool()).tolist() == [2, 0, 3, 1, 4]


def test_only_hard_and_unseen_prompts_have_a_weight() -> None:
    rates = PassRates(4, prior_trials=0.0)
    for prompt, passes in ((0, 0), (1, 1), (2, 2)):
        rates.record(prompt, [1.0] * passes + [0.0] * (4 - passes))
    assert hard_only(Pool(rates=rates)).tolist() == [1, 1, 0, 1]
    assert hard_only(Pool(rates=rates), max_rate=0.1).tolist() == [1, 0, 0, 1]
    with pytest.raises(ConfigError, match="max_rate"):
        hard_only(Pool(rates=rates), max_rate=2)
