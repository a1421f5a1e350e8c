"""The monitor: hysteresis, config, resuming, and what alarms read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.health_finding import HealthFinding
from verl_agentic.observe.health.monitor import ALARMS, HealthMonitor, HealthSettings

# Of a real run (GRPO, a rubric on arithmetic with a tool): metric -> its value at every step, or the one it always has.
HEALTHY_RUN = Path(__file__).parents[2] / "fixtures" / "healthy_run.json"
TEXT = "episode/repeated_ngrams"
ONLY_REPETITION = {
    "actions": {"default": "off", "repetition": "warn"},
    "thresholds": {"repetition": {"window": 1, "patience": 3}},
}


def monitor(**section: Any) -> HealthMonitor:
    return HealthMonitor(read_settings(HealthSettings, section, section="health"))


def observed(watch: HealthMonitor, values: Iterable[float], *, metric: str = TEXT) -> list[int]:
    """Returns the steps at which something was found."""
    return [step for step, value in enumerate(values, 1) if watch.observe(step, {metric: value})]


def test_a_real_run_that_went_well_is_silent() -> None:
    columns = json.loads(HEALTHY_RUN.read_text())
    watch, num_steps = monitor(), len(columns["episode/acc"])
    assert num_steps == 45 and columns["episode/acc"][-1] > 2 * columns["episode/acc"][0]
    for step in range(num_steps):
        row = {name: values[step] if isinstance(values, list) else values for name, values in columns.items()}
        assert watch.observe(step + 1, row) == []
    # Silent, and not for want of metrics.
    seeing = set(ALARMS) - set(watch.missing)
    assert seeing >= {"entropy_collapse", "length_explosion", "kl_blowup", "invalid_calls", "tool_use_collapse"}
    assert seeing >= {"truncation", "memory_growth", "gradient", "infra_errors", "stalled_learning"}


def test_an_alarm_waits_is_raised_once_and_again_after_it_was_over() -> None:
    bad, good = 0.9, 0.0
    watch = monitor(**ONLY_REPETITION)
    # Raised at the 3rd bad step; the 2 good ones are too few to end it; 3 do.
    steps = observed(watch, [bad] * 6 + [good] * 2 + [bad] * 4 + [good] * 3 + [bad] * 2 + [good] + [bad] * 4)
    assert steps == [3, 21]


def test_what_holds_now_is_a_metric_of_every_alarm_that_is_on() -> None:
    watch = monitor(**ONLY_REPETITION)
    told = []
    for step, value in enumerate([0.9] * 4 + [0.0] * 4, 1):
        watch.observe(step, {TEXT: value})
        told.append(watch.metrics())
    assert told == [{"health/repetition": sign} for sign in (0, 0, 1, 1, 1, 1, 0, 0)]
    assert set(monitor().metrics()) == {f"health/{name}" for name in ALARMS}


def test_a_finding_says_what_since_when_and_what_to_do() -> None:
    watch = monitor(actions={"repetition": "stop"}, thresholds={"repetition": {"window": 1, "text": 0.5}})
    found = [finding for step in range(5, 9) for finding in watch.observe(step, {TEXT: 0.6})]
    assert found == [
        HealthFinding(
            step=7,
            check="repetition",
            level="stop",
            status="fail",
            found="60% of the text repeats earlier text (limit 50%); since step 5",
            evidence={"repeated_ngrams": 0.6, "since_step": 5.0},
            advice=found[0].advice,
        )
    ]
    assert "agentic.rubric.components" in found[0].advice


def test_steps_without_news_neither_raise_nor_end_an_alarm() -> None:
    watch = monitor(**ONLY_REPETITION)
    found = []
    for step in range(1, 30):
        found += watch.observe(step, {TEXT: 0.9} if step % 5 == 0 else {"actor/lr": 1.0})
    # The 3rd look at which it holds.
    assert [finding.step for finding in found] == [15]
    assert watch.metrics() == {"health/repetition": 1.0}


def test_another_kind_of_the_same_is_another_finding() -> None:
    watch = monitor(
        actions={"default": "off", "zero_signal_groups": "log"}, thresholds={"zero_signal_groups": {"window": 1}}
    )
    found = []
    for step in range(1, 11):
        hard, easy = (0.9, 0.0) if step <= 5 else (0.0, 0.9)
        groups = {"zero_signal": 0.9, "all_0": hard, "all_1": easy}
        found += watch.observe(step, {f"credit/{name}_group_frac": value for name, value in groups.items()})
    assert [(f.step, f.level, f.advice.split(":")[0]) for f in found] == [
        (3, "log", "the tasks are too hard"),
        (8, "log", "the tasks are too easy"),
    ]


def test_every_so_many_steps() -> None:
    assert observed(monitor(**ONLY_REPETITION, every=4), [0.9] * 20) == [12]


def test_what_is_measured_in_other_steps_than_those_of_looks_is_seen() -> None:
    watch = monitor(**ONLY_REPETITION, every=4)
    found = [watch.observe(step, {TEXT: 0.9} if step % 8 == 1 else {}) for step in range(1, 33)]
    # Measured in steps 1, 9, 17 and 25, looked at in 4, 12, 20 and 28.
    assert [step for step, findings in enumerate(found, 1) if findings] == [20]


def test_what_is_off_is_neither_looked_at_nor_told() -> None:
    assert observed(monitor(enabled=False), [0.9] * 9) == []
    assert monitor(enabled=False).metrics() == {}
    # YAML's bare `off` is false.
    watch = monitor(actions={"repetition": False})
    assert observed(watch, [0.9] * 9) == [] and "health/repetition" not in watch.metrics()


def test_numbers_of_numpy_and_torch_count_and_what_is_no_number_does_not() -> None:
    for to_number in (np.float32, torch.tensor, lambda value: np.array([value])[0]):
        watch = monitor(**ONLY_REPETITION)
        found = [watch.observe(step, {TEXT: to_number(0.9)}) for step in range(3)]
        assert len(found[-1]) == 1
    watch = monitor(**ONLY_REPETITION)
    for value in ("0.9", None, torch.ones(3), {"a": 1}):
        assert watch.observe(1, {TEXT: value}) == []
    assert watch.missing["repetition"]


def test_the_baseline_is_that_of_the_whole_run_however_long() -> None:
    watch = HealthMonitor()
    stuck = {"episode/acc": 0.5}
    for step in range(1, 1001):
        watch.observe(step, {"batch/entropy": 1.0, **stuck})
    found = [f for step in range(1001, 1020) for f in watch.observe(step, {"batch/entropy": 0.1, **stuck})]
    assert [f.check for f in found] == ["entropy_collapse"] and found[0].evidence["entropy_before"] == 1.0


def test_an_alarm_that_fails_does_not_end_the_run_and_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(history: History, *, window: int = 1) -> None:
        raise AttributeError("broken")

    monkeypatch.setitem(cast("dict[str, Any]", ALARMS), "repetition", replace(ALARMS["repetition"], judge=look))
    watch = monitor(actions={"gradient": "log"})
    found = [watch.observe(step, {TEXT: 0.9, "actor/grad_norm": math.inf}) for step in range(5)]
    assert [[finding.check for finding in step] for step in found] == [["gradient"], [], [], [], []]
    assert caplog.text.count("the alarm repetition failed") == 1


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"action": {}}, "'action'"),
        ({"actions": {"entropy": "stop"}}, "health.actions"),
        ({"thresholds": {"gradients": {}}}, "health.thresholds"),
        ({"thresholds": {"default": {}}}, "health.thresholds"),
        ({"thresholds": {"gradient": {"times": "3"}}}, "times"),
        ({"thresholds": {"gradient": {"times": math.nan}}}, "nan"),
        ({"thresholds": {"gradient": {"window": 51}}}, "from 1 to 50, got 51"),
    ],
)
def test_a_section_that_cannot_work_is_refused(section: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings(HealthSettings, section, section="health")


def test_an_empty_section_warns_of_everything() -> None:
    for section in (None, {}):
        settings = read_settings(HealthSettings, section, section="health")
        assert settings == HealthSettings() and {settings.action(name) for name in ALARMS} == {"warn"}


def test_a_held_out_grader_of_any_name_is_read() -> None:
    # H2: a gap of .4, tau .1.
    watch = monitor(thresholds={"holdout_gap": {"train": "val-core/train", "holdout": "val-core/strict"}})
    row = {"val-core/train": 0.9, "val-core/strict": 0.5}
    found = [finding for step in range(10) for finding in watch.observe(step, row)]
    assert [finding.evidence["gap"] for finding in found] == [pytest.approx(0.4)]


def test_boundary_of_the_seed_row() -> None:
    # H14: base .3 and .8, now .5 and .7.
    names = ("val-core/x/acc/mean@8", "val-core/x/acc/best@8/mean")
    watch, found = HealthMonitor(), []
    for step, numbers in enumerate([(0.3, 0.8), (0.4, 0.79), (0.5, 0.7), (0.5, 0.7)]):
        found += watch.observe(step, dict(zip(names, numbers, strict=True)))
    assert [finding.check for finding in found] == ["boundary_collapse"]


def test_every_alarm_says_what_it_sees_and_what_it_reads() -> None:
    for name, alarm in ALARMS.items():
        assert alarm.name == name and alarm.what.endswith(".") and alarm.reads, name
        assert alarm.defaults["patience"] >= 1 and "window" in alarm.defaults, name


def test_verls_own_loops_are_watched_where_there_are_no_stop_reasons() -> None:
    """V1 counts the rows that are as long as the batch's longest: only an unchanging longest is the budget."""
    for longest, raised in ((lambda step: 512.0, True), (lambda step: 500.0 + step, False)):
        watch = monitor(actions={"default": "off", "truncation": "warn"})
        found = []
        for step in range(12):
            found += watch.observe(step, {"response_length/clip_ratio": 0.6, "response_length/max": longest(step)})
        assert bool(found) is raised


def test_turns_tell_of_tools_where_calls_are_not_counted() -> None:
    watch = monitor(actions={"default": "off", "tool_use_collapse": "warn"})
    # verl counts the question and the answer: 2 is an episode without a call.
    found = [f for step in range(40) for f in watch.observe(step, {"num_turns/mean": 5.0 if step < 20 else 2.0})]
    assert len(found) == 1 and found[0].evidence["tool_calls_best"] == 1.5


def test_tools_that_are_expected_and_never_used() -> None:
    watch = monitor(thresholds={"tool_use_collapse": {"expected": 0.5}})
    assert len(observed(watch, [0.0] * 20, metric="episode/tool_calls")) == 1
    assert observed(monitor(), [0.0] * 20, metric="episode/tool_calls") == []
