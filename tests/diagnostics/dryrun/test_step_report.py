"""The report of a dry run: verdicts, and whose fault an error is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.checks.dryrun.events import Events
from verl_agentic.checks.dryrun.step_report import ExpectedStep, Report, Stage, build_report, first_error

_COMPLETIONS = [{"prompt": [1, 2], "ids": [10, 11]}, {"prompt": [1, 2, 10, 11, 20, 21], "ids": [12]}]
_GRADIENT = {
    "ids": [1, 2, 10, 11, 20, 21, 12],
    "num_prompt": 2,
    "mask": [1, 1, 0, 0, 1],
    "advantages": [0.5, 0.5, 0.0, 0.0, 0.5],
    "segments": [[2, 4, "tool", 0]],
    "gradients": {"log_probs": [0.1, 0.1, 0.0, 0.0, 0.1]},
    "elsewhere": {"log_probs": 0.0},
}


def _row(session: int, reward: float, advantage: float, **numbers: float) -> dict[str, Any]:
    return {
        "uid": "a",
        "session": session,
        "index": 0,
        "response_tokens": 5,
        "model_tokens": 3,
        "reward": reward,
        "advantage_min": advantage,
        "advantage_max": advantage,
        "stop_reason": "answered",
        "error": "",
        "numbers": {"acc": reward, "tool_calls": 1.0, **numbers},
    }


def _step(folder: Path) -> Events:
    """Returns the events of a step that is right."""
    rows = [_row(0, 1.0, 0.7, external=1.0), _row(1, 0.0, -0.7)]
    targets = {"as_is": -0.5, "not_written": -0.5, "written": 1.0}
    update = {"output": "log_probs", "loss": -0.1, "grad_norm": 0.3, "parameters": 2, "changed": 2}
    events = Events(folder)
    for time, (kind, fields) in enumerate(
        [
            ("stage", {"stage": "start", "seconds": 20.0}),
            ("stage", {"stage": "rollout", "seconds": 2.0}),
            ("stage", {"stage": "log_probs", "seconds": 0.2}),
            ("rows", {"rows": rows}),
            ("stage", {"stage": "advantage", "seconds": 0.1}),
            ("gradient", {"rows": [_GRADIENT], "targets": targets}),
            ("update", {**update, "squares": {"w": 4.0, "b": 1.0}}),
            ("stage", {"stage": "update", "seconds": 0.5}),
            ("server_weights", {"version": 1, "squares": {"w": 4.0, "b": 1.0}}),
            ("stage", {"stage": "weights", "seconds": 0.1}),
        ]
    ):
        events.all.append({"event": kind, "time": float(time), **fields})
    return events


def _report(events: Events, *, scripted: bool = True, ended_well: bool = True, **metrics: float) -> Report:
    expected = ExpectedStep(scripted=scripted)
    return build_report(events, completions=_COMPLETIONS, metrics=metrics, expected=expected, ended_well=ended_well)


def _stage(report: Report, name: str) -> Stage:
    return next(stage for stage in report.stages if stage.name == name)


def _event(events: Events, kind: str) -> dict[str, Any]:
    return next(event for event in events.all if event["event"] == kind)


def test_a_step_that_is_right_is_right_in_every_stage(tmp_path: Path) -> None:
    report = _report(_step(tmp_path))
    assert report.is_right and {stage.status for stage in report.stages} == {"ok"}
    assert _stage(report, "start").seconds == 20.0
    assert "1 of 1 groups have signal" in _stage(report, "advantage").seen[0]


def test_weights_that_are_not_the_trainer_s_fail(tmp_path: Path) -> None:
    events = _step(tmp_path)
    _event(events, "server_weights")["squares"] = {"w": 4.0, "b": 1.1}
    report = _report(events)
    assert not report.is_right and "got other values of ['b']" in _stage(report, "weights").wrong[0]


def test_weights_of_before_the_update_are_none(tmp_path: Path) -> None:
    events = _step(tmp_path)
    _event(events, "server_weights")["time"] = 0.5
    assert _stage(_report(events), "weights").status == "fail"


def test_a_gradient_that_moves_nothing_fails(tmp_path: Path) -> None:
    events = _step(tmp_path)
    _event(events, "update")["changed"] = 0
    assert "no parameter changed" in _stage(_report(events), "update").wrong[0]


def test_a_gradient_norm_that_is_not_finite_fails(tmp_path: Path) -> None:
    events = _step(tmp_path)
    _event(events, "update")["grad_norm"] = float("nan")
    assert _stage(_report(events), "update").status == "fail"


def test_a_solution_that_earns_nothing_fails_the_reward(tmp_path: Path) -> None:
    events = _step(tmp_path)
    _event(events, "rows")["rows"] = [_row(0, 0.0, 0.0, external=1.0), _row(1, 0.0, 0.0)]
    assert "own solution scored 0" in _stage(_report(events), "reward").wrong[0]


def test_equal_rewards_are_no_fault_and_different_ones_without_advantage_are(tmp_path: Path) -> None:
    events = _step(tmp_path)
    _event(events, "rows")["rows"] = [_row(0, 1.0, 0.0), _row(1, 1.0, 0.0)]
    assert _stage(_report(events, scripted=False), "advantage").status == "warn"
    _event(events, "rows")["rows"] = [_row(0, 1.0, 0.0), _row(1, 0.0, 0.0)]
    assert _stage(_report(events, scripted=False), "advantage").status == "fail"
    # Neither a void session nor one with guidance is a sibling of the others.
    for numbers, tokens in (({}, 0), ({"guided": 1.0}, 3)):
        apart = {**_row(1, 0.0, 0.0, **numbers), "model_tokens": tokens}
        _event(events, "rows")["rows"] = [_row(0, 1.0, 0.0), apart]
        assert _stage(_report(events, scripted=False), "advantage").status == "warn"


def test_void_episodes_are_told_and_fail_when_they_are_all(tmp_path: Path) -> None:
    events = _step(tmp_path)
    void = {"stop_reason": "infra_error", "error": "EnvError: gone", "model_tokens": 0}
    rows = _event(events, "rows")["rows"]
    rows[1] |= void
    assert _stage(_report(events), "rollout").status == "warn"
    rows[0] |= void
    assert "all episodes are void; the first: EnvError: gone" in _stage(_report(events), "rollout").wrong[0]


def _episodes(*reasons: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"event": "episode", "time": 2.5, "is_void": True, "stop_reason": stop, "error": error}
        for stop, error in reasons
    ]


@pytest.mark.parametrize("later", ["advantage", "update", "weights"])
@pytest.mark.parametrize(
    ("reason", "stage"),
    [
        (("infra_error", "ScoringError: scoring failed, got TypeError"), "reward"),
        (("infra_error", "SandboxError: no engine"), "rollout"),
        (("timeout", ""), "rollout"),
        (("answered", "math abstained"), "reward"),
    ],
)
def test_void_episodes_are_the_cause_of_the_error_that_follows(
    tmp_path: Path, reason: tuple[str, str], stage: str, later: str
) -> None:
    events = _step(tmp_path)
    events.all = [event for event in events.all if event["event"] != "rows"]
    events.all += [
        *_episodes(reason, reason, ("infra_error", "EnvError: once")),
        _error(4.0, later, "ValueError", "mask"),
    ]
    report = _report(events, ended_well=False)
    assert report.error is not None and report.error.stage == stage
    assert "all 3 episodes" in report.error.message
    assert (reason[1] or reason[0]) in report.error.message and _stage(report, stage).status == "fail"


def test_an_error_of_the_step_stays_the_cause_if_an_episode_counts_or_it_came_before(tmp_path: Path) -> None:
    void = ("infra_error", "EnvError: gone")
    for stage, episodes in (("advantage", [{**_episodes(void)[0], "is_void": False}]), ("rollout", _episodes(void))):
        events = _step(tmp_path)
        events.all += [*episodes, _error(4.0, stage, "ValueError", "mask")]
        report = _report(events, ended_well=False)
        assert report.error is not None and report.error.type == "ValueError"


def test_breaches_of_the_audit_fail(tmp_path: Path) -> None:
    assert _stage(_report(_step(tmp_path), **{"audit/breaches": 3.0}), "advantage").status == "fail"  # pyright: ignore


def _error(time: float, stage: str, kind: str, message: str) -> dict[str, Any]:
    return {
        **{"event": "error", "time": time, "stage": stage, "type": kind, "message": message},
        **{"where": "env.py:3", "trace": ""},
    }


def test_the_earliest_error_of_any_process_is_the_cause_and_later_stages_are_not_reached(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.all = [
        {"event": "stage", "time": 1.0, "stage": "start", "seconds": 20.0},
        _error(9.0, "", "RayTaskError(RuntimeError)", "ray::TaskRunner: RuntimeError: no rows"),
        _error(5.0, "reward", "KeyError", "'answer'"),
    ]
    report = _report(events, ended_well=False)
    assert report.error is not None and (report.error.stage, report.error.type) == ("reward", "KeyError")
    assert not report.is_right and _stage(report, "reward").wrong == ["KeyError: 'answer'"]
    assert _stage(report, "update").status == "not reached"


def test_without_an_event_the_log_s_first_exception_that_is_not_ray_s_is_the_cause(tmp_path: Path) -> None:
    log = (
        "(WorkerDict pid=7) \x1b[36mwarming up\x1b[0m\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly\n"
        "ray.exceptions.RayTaskError(OSError): \x1b[36mray::WorkerDict.init_model()\x1b[39m\n"
        "(WorkerDict pid=7) OSError: no file named model.safetensors in /models/x\n"
    )
    events = Events(tmp_path)
    events.all = [{"event": "begin", "time": 1.0, "stage": "start"}]
    error = first_error(events, log=log)
    assert (error.stage, error.type) == ("start", "OSError")
    assert error.message == "no file named model.safetensors in /models/x"


def test_the_stage_of_an_error_without_one_is_the_one_under_way(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.all = [
        {"event": "stage", "time": 1.0, "stage": "start", "seconds": 1.0},
        {"event": "begin", "time": 2.0, "stage": "rollout"},
        _error(3.0, "", "StarvationError", "no group passes"),
    ]
    assert first_error(events, log="").stage == "rollout"


def test_events_are_read_as_they_are_written_and_half_a_line_is_left(tmp_path: Path) -> None:
    events, path = Events(tmp_path), tmp_path / "events-1.jsonl"
    first = json.dumps({"event": "begin", "time": 2.0, "stage": "start"})
    path.write_text(f'{first}\n{{"event": "sta')
    assert [event["stage"] for event in events.refresh()] == ["start"]
    with path.open("a") as file:
        file.write('ge", "time": 1.0, "stage": "start"}\n')
    assert [event["event"] for event in events.refresh()] == ["stage"] and len(events.all) == 2
