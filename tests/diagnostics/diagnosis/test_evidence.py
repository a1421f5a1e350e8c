"""Folders that hold less than a whole run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.log.reader import write_run
from verl_agentic.log.schema import TRAJECTORIES
from verl_agentic.observe.checklist import diagnose
from verl_agentic.observe.checks.run_state import run_state
from verl_agentic.observe.checks.tool_distribution import tool_distribution
from verl_agentic.observe.checks.waiting import waiting
from verl_agentic.observe.diagnosis import run_folder
from verl_agentic.observe.diagnosis.evidence import RunEvidence
from verl_agentic.observe.live.root_causes import read_errors


def test_verls_own_file_logger_is_enough(tmp_path: Path) -> None:
    lines = [{"step": step, "data": {"critic/score/max": 0.0, "critic/score/min": 0.0}} for step in (1, 2, 3)]
    (tmp_path / "logs").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "logs" / "grpo_0.jsonl").write_text(text + '{"step": 4, "da')

    run = RunEvidence(tmp_path)

    assert run.last_step == 3
    assert diagnose(run)["reward_zeros"].status == "fail"


def test_the_printed_output_is_enough(tmp_path: Path) -> None:
    printed = (
        "step:{} - critic/score/max:np.float64({}) - critic/score/min:-0.5 - actor/entropy:0.4 - training/epoch:0\n"
    )
    head = "(TaskRunnerV1 pid=7) \x1b[36m" + printed.format(1, 0.75)
    (tmp_path / "run.log").write_text(head + "Traceback\n" + printed.format(2, 1.0) + "ValueError: no such file\n")
    os.utime(tmp_path / "run.log", (time.time() - 3600,) * 2)  # pyright: ignore[reportArgumentType]

    run = RunEvidence(tmp_path)

    assert run.series("critic/score/max") == [(1, 0.75), (2, 1.0)]
    assert run.series("actor/entropy") == [(1, 0.4), (2, 0.4)]
    assert run_state.diagnose(run).status == "fail" and "ValueError: no such file" in run_state.diagnose(run).found


def test_a_run_deep_below_the_folder_is_found(broken_runs: Any, tmp_path: Path) -> None:
    broken_runs.make("unknown_tool", tmp_path / "rl" / "grpo")

    run = RunEvidence(tmp_path)

    assert len(run.rows) == 56 and run.config["data"] == {"max_response_length": 256} and run.tokenizer is not None


@pytest.mark.slow
def test_a_run_is_alive_while_its_files_are_written(broken_runs: Any, tmp_path: Path) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    now = time.time()

    assert run_state.diagnose(RunEvidence(folder, now=now)).evidence["state"] == "running"
    later = RunEvidence(folder, now=now + 1000)
    assert run_state.diagnose(later).evidence["state"] == "died"
    assert (
        waiting.diagnose(later).status == "fail"
        and "waited when the run was last alive" in waiting.diagnose(later).found
    )


def test_the_age_of_a_wait_goes_on_while_the_run_lives(broken_runs: Any, tmp_path: Path) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    report = json.loads(next(folder.glob("waiting-*.json")).read_text())

    run = RunEvidence(folder, now=report["time"] + 40)

    assert waiting.diagnose(run).evidence["age_s"] == 1900.0


@pytest.mark.sample(1)
@pytest.mark.parametrize("quiet_s", [10, 100, 200, 10_000])
@pytest.mark.parametrize("config", ["trainer: {total_training_steps: 100}", "trainer: {total_training_steps: null}"])
def test_a_run_that_hangs_is_diagnosed_by_its_last_report_however_old_it_is(
    broken_runs: Any, tmp_path: Path, quiet_s: int, config: str
) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    (folder / "config.yaml").write_text(config)
    run = RunEvidence(folder, now=time.time() + quiet_s)

    verdict = waiting.diagnose(run)

    assert verdict.status == "fail" and "'search'" in verdict.found and "s25g1/2" in verdict.found
    _noted(folder, False, True, now=time.time())
    assert waiting.diagnose(RunEvidence(folder, now=time.time() + quiet_s)).status == "ok", (
        "a run that ended does not hang"
    )


@pytest.mark.slow
def test_a_blocked_event_loop_is_named_with_its_code(broken_runs: Any, tmp_path: Path) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    path = next(folder.glob("waiting-*.json"))
    report = json.loads(path.read_text())
    path.write_text(json.dumps({**report, "loop_lag_s": 30.0, "blocked_by": ["env.py:12 in step"]}))

    verdict = waiting.diagnose(RunEvidence(folder))

    assert verdict.status == "fail" and "env.py:12 in step" in verdict.found and "event loop" in verdict.advice


def _noted(folder: Path, *ended: bool, now: float) -> None:
    """Notes beginnings and ends of the trainer, a minute between them, the last one now."""
    lines = [{"step": 24, "time": now - 60 * i, "ended": one} for i, one in enumerate(reversed(ended))]
    (folder / "ended.jsonl").write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))


def _left_behind(broken_runs: Any, tmp_path: Path) -> Path:
    """A run that does not say how many steps it was to make, with an error and a report of a worker."""
    folder = broken_runs.make("crashed_actor", tmp_path)
    report = {"time": time.time() - 3600, "pid": 1, "loop_lag_s": 60.0, "blocked_by": [], "episodes": [_EPISODE]}
    (folder / "waiting-h-1-ab.json").write_text(json.dumps(report))
    (folder / "config.yaml").write_text("trainer: {total_training_steps: null}")
    return folder


_EPISODE = {"uid": "a", "session": 0, "agent": "x", "env": "e", "activity": "tool", "tool": "t", "turn": 0}
_EPISODE |= {"age_s": 5000.0, "episode_s": 5000.0, "since": 0.0}


def test_a_run_that_noted_its_end_has_ended_whatever_was_left_behind(broken_runs: Any, tmp_path: Path) -> None:
    folder, now = _left_behind(broken_runs, tmp_path), time.time()
    later = now + 10_000

    unknown = run_state.diagnose(RunEvidence(folder, now=later))
    assert unknown.status == "unknown" and unknown.evidence["state"] == "stopped"

    _noted(folder, False, True, now=now)
    ended = RunEvidence(folder, now=later)
    assert run_state.diagnose(ended).evidence["state"] == "ended" and waiting.diagnose(ended).status == "ok"
    assert diagnose(ended)["first_errors"].status == "warn"


@pytest.mark.slow
def test_a_run_that_was_resumed_after_its_end_lives_or_has_died(broken_runs: Any, tmp_path: Path) -> None:
    folder, now = _left_behind(broken_runs, tmp_path), time.time()
    _noted(folder, False, True, False, now=now)

    assert run_state.diagnose(RunEvidence(folder, now=now + 10)).evidence["state"] == "running"
    died = run_state.diagnose(RunEvidence(folder, now=now + 10_000))
    assert died.status == "fail" and "its end was not recorded" in died.found


@pytest.mark.slow
def test_a_report_of_a_worker_that_is_gone_is_no_wait_of_a_live_run(broken_runs: Any, tmp_path: Path) -> None:
    folder, now = _left_behind(broken_runs, tmp_path), time.time()
    verdict = waiting.diagnose(RunEvidence(folder, now=now))
    assert verdict.status == "ok" and "1 reports are old" in verdict.found

    (path,) = folder.glob("waiting-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "report_every_s": 1300.0}))
    assert waiting.diagnose(RunEvidence(folder, now=now)).status == "fail", "within three of its intervals it holds"


def test_files_that_vanish_or_cannot_be_read_while_it_looks_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("said")
    os.utime(tmp_path / "run.log", (1000.0, 1000.0))
    for name in ("gone.log", "errors-h-1-ab.jsonl", "health.jsonl", "waiting-h-1-ab.json"):
        (tmp_path / name).symlink_to(tmp_path / "nothing")
    (tmp_path / "waiting-h-1-ab.tmp").write_text("")

    assert run_folder.read_output(tmp_path) == "said" and run_folder.last_touched(tmp_path) == 1000.0
    assert read_errors(tmp_path) == [] == RunEvidence(tmp_path).findings == RunEvidence(tmp_path).waiting


def test_the_newest_output_comes_last(tmp_path: Path) -> None:
    for name, written in (("a.log", 2000.0), ("b.log", 1000.0)):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (written, written))

    assert run_folder.read_output(tmp_path) == "b.log\na.log"


@pytest.mark.sample(1)
@pytest.mark.parametrize("column", ["prompt_ids", "response_ids"])
def test_a_withheld_secret_ends_no_diagnosis(broken_runs: Any, tmp_path: Path, column: str) -> None:
    folder = broken_runs.make("healthy", tmp_path / "run")
    found = RunEvidence(folder).sample[0]
    record = {name: found[name] for name in TRAJECTORIES.names} | {column: [-1] * len(found[column])}
    write_run(tmp_path / "other", trajectories=[record])
    (folder / "tokenizer").rename(tmp_path / "other" / "tokenizer")

    run = RunEvidence(tmp_path / "other")

    assert diagnose(run)["mask"].status == "ok" and tool_distribution.diagnose(run).evidence["calls"]


def test_records_that_were_cut_off_leave_the_others(broken_runs: Any, tmp_path: Path) -> None:
    run = RunEvidence(broken_runs.make("killed_run", tmp_path))

    assert 40 <= len(run.rows) < 56


def test_an_empty_folder_has_no_evidence(tmp_path: Path) -> None:
    run = RunEvidence(tmp_path)

    assert run.is_empty and run.last_step == 0 and run.sample == []
    assert run_state.diagnose(run).status == "unknown"
