"""pass@k as a reward: what it pays is the mean over all subsets of k that hold the sample."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from samples import group_values, sample

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.graders.components.pass_at_k import best_of_k, pass_at_k

# V-PASSK: 3 of 8 succeed.
OUTCOMES = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("k", "expected"), [(1, 0.375), (2, 0.642857), (4, 0.928571), (8, 1.0)])
def test_the_mean_of_the_group_is_the_unbiased_pass_at_k(k: int, expected: float) -> None:
    values = best_of_k(OUTCOMES, k=k)
    assert sum(values) / len(values) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
def test_a_failure_earns_what_the_others_make_up_for(k: int) -> None:
    # PKPO: 1 for a success, rho(n - 1, c, k - 1) for a failure.
    made_up = 1.0 - math.comb(7 - 3, k - 1) / math.comb(7, k - 1)
    assert best_of_k(OUTCOMES, k=k) == pytest.approx([1.0 if o else made_up for o in OUTCOMES])


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6])
def test_any_outcomes_earn_the_mean_over_all_subsets(k: int) -> None:
    outcomes = [random.Random(k).random() for _ in range(6)]
    outcomes[2] = outcomes[4]
    for index, earned in enumerate(best_of_k(outcomes, k=k)):
        subsets = [s for s in itertools.combinations(range(6), k) if index in s]
        assert earned == pytest.approx(sum(max(outcomes[i] for i in s) for s in subsets) / len(subsets))


def test_a_small_group_and_equal_outcomes() -> None:
    assert best_of_k([0.0, 1.0], k=8) == [1.0, 1.0]
    assert best_of_k([0.0] * 4, k=2) == [0.0] * 4
    assert best_of_k([0.5], k=3) == [0.5] and best_of_k([], k=2) == []


def test_the_component_reads_the_outcomes_of_the_environment() -> None:
    group = [sample("x", outcome=o) for o in (1.0, 0.0, 0.0)]
    assert group_values(pass_at_k, group, k=2) == pytest.approx([1.0, 0.5, 0.5])
    with pytest.raises(ScoringError, match="outcome"):
        group_values(pass_at_k, [*group, sample("x")], k=2)
    assert group_values(pass_at_k, group, k=1) == [1.0, 0.0, 0.0]
    with pytest.raises(ConfigError, match="k"):
        pass_at_k.make({"k": 0})
