"""Inputs of alarms: levels, baselines, and conditions that two series have in common."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from verl_agentic.observe.diagnosis.history import History, first_of, gain, has_learnt, ratio, total
from verl_agentic.observe.health.monitor import ALARMS

Row = dict[str, float]


def told(name: str, row: Callable[[int], Row], *, steps: int = 60) -> bool:
    """Tells whether the condition of an alarm holds at the end of a run."""
    finding = ALARMS[name](History(row(step) for step in range(steps)))
    return finding is not None and finding.status != "ok"


def test_a_level_is_of_the_last_values_and_a_baseline_of_the_first() -> None:
    history = History({"x": float(value)} for value in [9, 1, 2, 3, 5, 4, 7, 0])
    assert history.level("x", 3) == 4.0 and history.start("x", 3) == 2.0
    assert history.start("x", 4) == 2.5 and history.start("x", 5) is None
    assert history.level("x", 9) is None and history.level("y", 1) is None
    # The highest median of three in a row, before the last three: of 2, 3, 5.
    assert history.best("x", 3) == 3.0


def test_values_that_are_not_finite_or_not_there_are_passed_over() -> None:
    history = History([{"x": 1.0}, {"x": math.nan}, {}, {"x": math.inf}, {"x": 2.0}])
    assert history.first("x", 9) == [1.0, 2.0] and history.last("x", 1) == [2.0]


def test_a_long_run_is_remembered_at_both_ends() -> None:
    history = History({"x": float(step)} for step in range(1000))
    assert history.first("x", 3) == [0.0, 1.0, 2.0] and history.last("x", 3) == [997.0, 998.0, 999.0]
    assert len(history.first("x", 1000)) == 400


def test_quantities() -> None:
    row = {"a": 4.0, "b": 2.0, "zero": 0.0}
    history = History([row])
    assert history.last(first_of("none", "b", "a"), 1) == [2.0]
    assert history.last(total(["a", "b", "none"]), 1) == [6.0] and history.last(total(["none"]), 1) == []
    assert history.last(ratio("a", "b"), 1) == [2.0] and history.last(ratio("a", "zero"), 1) == []


@pytest.mark.parametrize(("before", "now", "learnt"), [(0.5, 0.56, True), (0.5, 0.54, False), (10.0, 10.4, False)])
def test_the_reward_has_risen_by_a_twentieth(before: float, now: float, learnt: bool) -> None:
    history = History({"critic/score/mean": value} for value in [before] * 5 + [now] * 5)
    assert gain(history, 5) == pytest.approx(now - before) and has_learnt(history, 5) is learnt


def test_siblings_that_succeed_from_the_beginning_are_no_echo_trap() -> None:
    for outcome, is_trap in ((0.95, False), (0.5, True)):
        assert is_trap is told(
            "echo_trap",
            lambda step, outcome=outcome: {
                "batch/within_group_std": 0.4 - 0.006 * step,
                "episode/score": 1.0,
                "episode/acc": outcome,
            },
        )


def test_turns_that_differ_alike_are_no_mismatch_of_later_ones() -> None:
    for first, is_mismatch in ((0.03, False), (0.005, True)):
        row = {f"batch/log_prob_diff/{name}": 0.045 for name in ("mean", "turn_1", "turn_2")}
        row |= {"batch/log_prob_diff/turn_0": first}
        assert told("rollout_mismatch", lambda step, row=row: row) is is_mismatch


def test_a_policy_that_becomes_worse_at_everything_has_no_collapsed_boundary() -> None:
    for one_now, is_collapse in ((0.2, False), (0.5, True)):
        assert is_collapse is told(
            "boundary_collapse",
            lambda step, one_now=one_now: {
                "val-core/x/acc/mean@8": one_now if step else 0.3,
                "val-core/x/acc/best@8/mean": 0.7 if step else 0.8,
            },
            steps=4,
        )


def test_metrics_that_come_seldom_keep_their_first_values_and_the_history_stays_small() -> None:
    history = History({"x": float(n), **({"val": float(n)} if n % 200 == 0 else {})} for n in range(20_000))
    assert history.first("val", 3) == [0.0, 200.0, 400.0] and history.last("val", 2) == [19_600.0, 19_800.0]
    assert history.first("x", 3) == [0.0, 1.0, 2.0] and history.last("x", 2) == [19_998.0, 19_999.0]
    assert len(history) <= 100 + 300 + 100 and history.now["x"] == 19_999.0


def test_an_alarm_whose_metrics_are_never_finite_finds_nothing() -> None:
    for name, alarm in ALARMS.items():
        needs = [need.split("|")[0].replace("*", "x") for need in alarm.reads if "{" not in need]
        finding = alarm(History([dict.fromkeys(needs, math.nan)] * 40, is_over=True))
        assert finding is None or finding.status == "ok" or name == "gradient", name
