"""pass@k and pass^k against worked examples and enumeration; the standard error against hand calculations."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError
from verl_agentic.observe.success_over_attempts import (
    Mean,
    clustered_mean,
    pass_at_k,
    pass_hat_k,
    proportion_interval,
    success_interval,
)


def test_both_are_those_of_the_worked_examples() -> None:
    assert [pass_at_k(8, 3, k) for k in (1, 2, 4, 8)] == pytest.approx([0.375, 0.642857, 0.928571, 1.0], abs=1e-6)
    assert [pass_hat_k(8, 3, k) for k in (1, 2, 4, 8)] == pytest.approx([0.375, 0.107143, 0.0, 0.0], abs=1e-6)
    assert [pass_hat_k(4, 3, k) for k in (1, 2, 3, 4)] == pytest.approx([0.75, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_both_are_the_shares_among_all_ways_to_choose_k_attempts(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
        assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_large_counts_neither_overflow_nor_lose_the_small_rest() -> None:
    # 1 - C(999, 500) / C(1000, 500) = 1 - 500 / 1000
    assert pass_at_k(1000, 1, 500) == pytest.approx(0.5)
    assert pass_hat_k(1000, 999, 500) == pytest.approx(0.5)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0), (0, 0, 1)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ConfigError, match=f"got n={n}, c={c}, k={k}"):
            estimate(n, c, k)


def test_one_attempt_per_task_has_the_usual_standard_error() -> None:
    # mean 0.5; sample variance of 1, 0, 1, 0 is 1/3; its root over sqrt(4) is sqrt(1/12)
    assert clustered_mean([[1.0], [0.0], [1.0], [0.0]]) == Mean(
        value=0.5, stderr=pytest.approx(math.sqrt(1 / 12)), count=4
    )


def test_attempts_that_agree_within_a_task_add_no_certainty() -> None:
    single = clustered_mean([[1.0], [0.0], [1.0], [0.0]])
    repeated = clustered_mean([[1.0] * 8, [0.0] * 8, [1.0] * 8, [0.0] * 8])
    assert (repeated.value, repeated.stderr, repeated.count) == (0.5, pytest.approx(single.stderr), 32)
    # Tasks that are all alike leave no doubt about tasks: every cluster's deviations sum to 0.
    assert clustered_mean([[1.0, 0.0], [0.0, 1.0]]).stderr == 0.0


def test_tasks_of_unequal_size_count_by_their_attempts_and_empty_ones_not_at_all() -> None:
    # mean 3/4; deviations sum to 3/4 in the first task and -3/4 in the second: sqrt(2/1 * 2 * 9/16) / 4 = 0.375
    assert clustered_mean([[1.0, 1.0, 1.0], [], [0.0]]) == Mean(value=0.75, stderr=pytest.approx(0.375), count=4)


def test_one_task_has_no_standard_error_and_no_attempt_no_mean() -> None:
    assert clustered_mean([[1.0, 0.0]]) == Mean(value=0.5, stderr=None, count=2)
    with pytest.raises(ConfigError, match="attempt"):
        clustered_mean([[], []])


def test_the_interval_is_wilsons() -> None:
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    assert proportion_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert proportion_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert proportion_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert proportion_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=1e-4)


@pytest.mark.parametrize("n", [5, 20, 100])
def test_the_interval_covers_the_truth_also_near_0_and_1(n: int) -> None:
    shares = [i / 200 for i in range(201)]
    intervals = [proportion_interval(c, n) for c in range(n + 1)]
    covered = [
        sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) for c, (low, high) in enumerate(intervals) if low <= p <= high)
        for p in shares
    ]
    assert sum(covered) / len(covered) > 0.945 and min(covered) > 0.82


@given(groups=st.lists(st.lists(st.sampled_from([0.0, 1.0]), max_size=6), min_size=1, max_size=8).filter(any))
def test_an_interval_over_tasks_holds_its_mean_and_is_never_empty(groups: list[list[float]]) -> None:
    mean = clustered_mean(groups)
    low, high = success_interval(groups)
    assert 0.0 <= low <= mean.value <= high <= 1.0
    widest, narrowest = proportion_interval(mean.value, 1), proportion_interval(mean.value * mean.count, mean.count)
    assert narrowest[1] - narrowest[0] - 1e-9 <= high - low <= widest[1] - widest[0] + 1e-9
    mirrored = success_interval([[1.0 - value for value in group] for group in groups])
    assert mirrored == pytest.approx((1 - high, 1 - low))


def test_attempts_that_agree_within_a_task_narrow_no_interval() -> None:
    single = success_interval([[1.0], [0.0], [1.0], [0.0]])
    assert success_interval([[1.0] * 8, [0.0] * 8, [1.0] * 8, [0.0] * 8]) == pytest.approx(single)
    assert success_interval([[0.0] * 8] * 4) == pytest.approx(proportion_interval(0, 4))


@pytest.mark.parametrize(("successes", "count"), [(0, 0), (2, 1), (-1, 3)])
def test_impossible_proportions_are_refused(successes: int, count: int) -> None:
    with pytest.raises(ConfigError, match=f"got {successes} of {count}"):
        proportion_interval(successes, count)


@pytest.mark.parametrize(("count", "stderr"), [(30, 0.091287), (100, 0.05), (500, 0.022361), (1_000, 0.015811)])
def test_a_thousand_tasks_tell_success_to_1_6_percent(count: int, stderr: float) -> None:
    mean = clustered_mean([[float(index % 2)] for index in range(count)])
    assert mean.stderr == pytest.approx(stderr * (count / (count - 1)) ** 0.5, rel=1e-4)
