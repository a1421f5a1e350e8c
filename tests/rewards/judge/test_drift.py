"""A judge that changes during a run: it judges the same work again, and an alarm names the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judges import JudgeServer, honest, judging, verdict

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.judge.drift import DriftWatch, JudgeDriftSettings
from verl_agentic.observe.health.monitor import HealthMonitor, HealthSettings


def make_watch(server: JudgeServer, folder: Path, **settings: Any) -> DriftWatch:
    return DriftWatch(JudgeDriftSettings(**{"every": 10, **settings}), server.options(retries=0), folder=folder)


def accept_all(body: dict[str, Any]) -> str:
    return verdict(body, passed=True)


def test_a_judge_that_stays_the_same_has_no_drift_and_is_asked_every_n_steps(tmp_path: Path) -> None:
    with judging(honest) as server:
        watch = make_watch(server, tmp_path)
        measured = {step: metrics for step in range(1, 22) if (metrics := watch.measure(step))}
    same = {"judge_drift/change": 0.0, "judge_drift/shift": 0.0, "judge_drift/no_value": 0.0}
    assert measured == {1: same, 11: same, 21: same} and len(server.bodies) == 3 * 8


def test_a_changed_judge_raises_the_alarm_also_after_a_restart(tmp_path: Path) -> None:
    monitor = HealthMonitor(HealthSettings())
    with judging(honest) as server:
        assert not monitor.observe(1, make_watch(server, tmp_path).measure(1))
        server.judge = accept_all  # the right half of the samples keeps its value
        metrics = make_watch(server, tmp_path).measure(11)
    assert metrics["judge_drift/change"] == metrics["judge_drift/shift"] == 0.5
    (finding,) = monitor.observe(11, metrics)
    assert "judge_drift" in str(finding) and "0.5" in str(finding)


def test_a_judge_without_a_verdict_is_no_change(tmp_path: Path) -> None:
    with judging(lambda body: "no verdict") as server:
        watch = make_watch(server, tmp_path)
        assert watch.measure(1) == {"judge_drift/no_value": 1.0}
        server.judge = honest
        assert watch.measure(11)["judge_drift/change"] == 0.0
    assert len(json.loads((tmp_path / "judge_drift.json").read_text())) == 8


def test_tasks_of_a_file_need_no_call(tmp_path: Path) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_text('tasks: {add: {prompt: "2+2?", reference: "4", wrong: "5"}}')
    with judging(honest) as server:
        make_watch(server, tmp_path, tasks=str(path)).measure(1)
    assert json.loads((tmp_path / "judge_drift.json").read_text()) == {"right:add": 1.0, "wrong:add": 0.0}


def test_a_set_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"judge_drift\.tasks.*nowhere"):
        JudgeDriftSettings(tasks=str(tmp_path / "nowhere.yaml")).load_samples()
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(DataError, match="probes"):
        JudgeDriftSettings(tasks=str(tmp_path / "empty.yaml")).load_samples()


def test_the_judge_is_that_of_the_rubric_without_its_cache() -> None:
    judge = {"use": "judge", "name": "clear", "options": {"endpoint": "http://h/v1", "models": "m", "cache": "c"}}
    reward = {"rubric": {"components": [{"use": "math"}, {**judge, "only_if": {"math": 1.0}}]}}
    options = JudgeDriftSettings(component="clear").read_options(reward)
    assert options.models == ("m",) and options.cache is None
    with pytest.raises(ConfigError, match=r"'judge'.*\['clear'\]"):
        JudgeDriftSettings().read_options(reward)
