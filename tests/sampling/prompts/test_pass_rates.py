"""The table of pass rates: what it is after groups, what it says of a weak base, and that it survives a checkpoint."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.sampling.prompts.pass_rates import PassRates


def plain(count: int = 2, **more: float) -> PassRates:
    return PassRates(count, **{"prior_trials": 0.0, **more})


def test_with_groups_of_one_size_the_rate_is_the_moving_average_without_its_start() -> None:
    rates = plain(memory=0.75)
    average, weight = 0.0, 0.0
    for passes in (3, 0, 4, 1):
        rates.record(1, [1.0] * passes + [0.0] * (4 - passes))
        average, weight = 0.75 * average + 0.25 * passes / 4, 0.75 * weight + 0.25
        assert rates.mean_N[1] == pytest.approx(average / weight)
    assert rates.mean_N[0] == 0.5 and not rates.is_seen_N[0]


def test_a_group_of_sixteen_is_more_evidence_than_one_of_four() -> None:
    rates = plain(memory=1.0)
    rates.record(0, [1.0] * 4)
    rates.record(0, [0.0] * 16)
    assert rates.mean_N[0] == pytest.approx(0.2)
    assert rates.groups_N[0] == 2


def test_the_prior_keeps_a_rate_off_zero_and_one_until_there_is_evidence() -> None:
    rates = PassRates(1, memory=1.0, prior_trials=1.0)
    rates.record(0, [0.0] * 4)
    assert rates.mean_N[0] == pytest.approx(0.5 / 5)
    assert rates.std_N[0] == pytest.approx(math.sqrt(0.1 * 0.9))


def test_the_deviation_is_that_of_the_population_of_attempts() -> None:
    rates = plain()
    rates.record(0, [1.0, 0.0, 0.0, 0.0, 0.0])
    rates.record(1, [0.2, 0.4, 0.9])
    assert rates.std_N == pytest.approx([0.4, float(np.std([0.2, 0.4, 0.9]))])


def test_streaks_count_groups_of_one_kind_in_a_row() -> None:
    rates = plain(1)
    for outcomes, streak in (([0.0, 0.9], -1), ([0.0], -2), ([1.0, 0.0], 0), ([1.0], 1), ([1.0, 1.0], 2), ([0.0], -1)):
        rates.record(0, outcomes)
        assert rates.streak_N[0] == streak
    assert rates.failures_N[0] == 1


def test_a_group_of_void_attempts_changes_nothing_and_a_number_that_is_none_is_refused() -> None:
    rates = plain()
    rates.record(0, [])
    assert rates.version == 0 and not rates.is_seen_N.any()
    with pytest.raises(DataError, match="prompt 0"):
        rates.record(0, [math.nan])


def test_a_base_that_solves_nothing_is_called_too_weak_once_enough_is_seen() -> None:
    rates = PassRates(40)
    for prompt in range(31):
        rates.record(prompt, [0.0] * 8)
    assert rates.complaint() is None
    rates.record(31, [0.0] * 8)
    assert rates.complaint() == (
        "base too weak: no attempt at any of the 32 prompts seen has succeeded, so groups carry no signal; start from "
        "a model that solves some (SFT), bring easier prompts, or reward partial success"
    )
    rates.record(3, [0.0, 0.5])
    assert rates.complaint() is None


def test_a_small_table_is_judged_when_all_of_it_is_seen() -> None:
    rates = PassRates(2)
    rates.record(0, [0.0])
    assert rates.complaint() is None
    rates.record(1, [0.0])
    assert str(rates.complaint()).startswith("base too weak")


def test_the_table_shows_the_hardest_first_and_the_metrics_only_what_is_seen() -> None:
    rates = plain(4)
    for prompt, outcomes in ((2, [1.0, 1.0]), (0, [0.0, 0.0]), (3, [1.0, 0.0])):
        rates.record(prompt, outcomes)
    assert [(row["prompt"], row["rate"], row["streak"]) for row in rates.rows()] == [(0, 0, -1), (3, 0.5, 0), (2, 1, 1)]
    third = pytest.approx(1 / 3)
    assert rates.metrics() == {
        "seen_share": 0.75,
        "pass_rate": 0.5,
        "never_solved_share": third,
        "always_solved_share": third,
    }
    assert plain().metrics() == {"seen_share": 0.0}


def test_a_restored_table_goes_on_as_the_saved_one() -> None:
    rates, restored = PassRates(3), PassRates(3)
    rates.record(0, [1.0, 0.0])
    state = rates.state_dict()
    restored.load_state_dict(state)
    for table in (rates, restored):
        table.record(0, [1.0])
        table.record(2, [0.0])
    for name, column in rates.state_dict().items():
        assert np.array_equal(column, restored.state_dict()[name]), name
    assert state["trials"][0] == 2.0  # a state is a copy
    with pytest.raises(DataError, match="3 prompts"):
        PassRates(4).load_state_dict(state)


def test_measured_rates_are_evidence_and_missing_ones_are_none() -> None:
    rates = plain(3)
    rates.start_from(np.array([0.25, np.nan, 1.0]), trials=4.0)
    assert rates.mean_N.tolist() == [0.25, 0.5, 1.0]
    assert rates.is_seen_N.tolist() == [True, False, True]
    rates.record(0, [1.0] * 4)
    assert rates.mean_N[0] == pytest.approx((0.7 * 1 + 4) / (0.7 * 4 + 4))
    with pytest.raises(DataError, match=r"must be 3 numbers in \[0, 1\]"):
        rates.start_from(np.array([0.0, 1.5, 1.0]), trials=1.0)


@pytest.mark.parametrize("bad", [{"memory": 1.5}, {"prior_rate": -0.1}, {"prior_trials": -1.0}, {"count": 0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="pass rates need"):
        PassRates(**{"count": 2, **bad})  # pyright: ignore[reportArgumentType]
