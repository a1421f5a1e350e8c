"""Variance over long horizons."""

from __future__ import annotations

import numpy as np
import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.observe.diagnosis.turn_variance import turn_correlation, variance_of_sum


@pytest.mark.parametrize(
    ("num_turns", "correlation", "expected"), [(10, 0, 10), (100, 0, 100), (10, 0.1, 19), (100, 0.1, 1090)]
)
def test_correlated_turns_add_up_to_more(num_turns: int, correlation: float, expected: float) -> None:
    assert variance_of_sum(num_turns, variance=1.0, correlation=correlation) == pytest.approx(expected)


def test_the_variance_of_a_sum_is_what_it_is_made_of() -> None:
    generator = np.random.default_rng(0)
    # A part that all turns of an episode share has the share rho of the variance 4.
    shared, own = generator.normal(size=(200_000, 1)), generator.normal(size=(200_000, 6))
    scores = 2 * (0.3**0.5 * shared + 0.7**0.5 * own)
    assert scores.sum(axis=1).var() == pytest.approx(variance_of_sum(6, variance=4.0, correlation=0.3), rel=0.02)
    assert turn_correlation(scores) == pytest.approx((4.0, 0.3), rel=0.02)


def test_the_estimate_turned_round_is_the_variance_of_the_sums() -> None:
    scores = [[1.0, 2.0, 4.0], [0.0, 1.0, -1.0], [3.0, 0.5, 2.0]]
    variance, correlation = turn_correlation(scores)
    sums = np.asarray(scores).sum(axis=1)
    assert variance_of_sum(3, variance=variance, correlation=correlation) == pytest.approx(sums.var(ddof=1))


def test_turns_that_repeat_each_other_are_fully_correlated() -> None:
    assert turn_correlation([[1.0, 1.0], [3.0, 3.0]]) == pytest.approx((2.0, 1.0))
    assert turn_correlation([[1.0, 3.0], [3.0, 1.0]]) == pytest.approx((2.0, -1.0))
    assert turn_correlation([[1.0, 2.0], [1.0, 2.0]]) == (0.0, 0.0)
    assert turn_correlation([[0.1, sum([0.1] * 3) / 3]] * 3 + [[sum([0.1] * 3) / 3, 0.1]]) == (0.0, 0.0)


@pytest.mark.parametrize("scores", [[], [[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0], [1.0]]])
def test_too_few_scores_are_refused(scores: list[list[float]]) -> None:
    with pytest.raises(DataError, match="turns"):
        turn_correlation(scores)
