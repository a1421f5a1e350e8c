"""Folders that hold less than a whole run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from verl_agentic.diagnostics.diagnosis.checklist import diagnose
from verl_agentic.diagnostics.diagnosis.checks.run_state import run_state
from verl_agentic.diagnostics.diagnosis.checks.waiting import waiting
from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence


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
    assert run_state(run).status == "fail" and "ValueError: no such file" in run_state(run).found


def test_a_run_deep_below_the_folder_is_found(broken_runs: Any, tmp_path: Path) -> None:
    broken_runs.make("unknown_tool", tmp_path / "rl" / "grpo")

    run = RunEvidence(tmp_path)

    assert len(run.rows) == 56 and run.config["data"] == {"max_response_length": 256} and run.tokenizer is not None


def test_a_run_is_alive_while_its_files_are_written(broken_runs: Any, tmp_path: Path) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    now = time.time()

    assert run_state(RunEvidence(folder, now=now)).evidence["state"] == "running"
    later = RunEvidence(folder, now=now + 1000)
    assert run_state(later).evidence["state"] == "died"
    assert waiting(later).status == "ok" and "waited when it ended" in waiting(later).found


def test_the_age_of_a_wait_goes_on_while_the_run_lives(broken_runs: Any, tmp_path: Path) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    report = json.loads(next(folder.glob("waiting-*.json")).read_text())

    run = RunEvidence(folder, now=report["time"] + 40)

    assert waiting(run).evidence["age_s"] == 1900.0


def test_a_blocked_event_loop_is_named_with_its_code(broken_runs: Any, tmp_path: Path) -> None:
    folder = broken_runs.make("tool_hangs", tmp_path)
    path = next(folder.glob("waiting-*.json"))
    report = json.loads(path.read_text())
    path.write_text(json.dumps({**report, "loop_lag_s": 30.0, "blocked_by": ["env.py:12 in step"]}))

    verdict = waiting(RunEvidence(folder))

    assert verdict.status == "fail" and "env.py:12 in step" in verdict.found and "event loop" in verdict.advice


def test_records_that_were_cut_off_leave_the_others(broken_runs: Any, tmp_path: Path) -> None:
    run = RunEvidence(broken_runs.make("killed_run", tmp_path))

    assert 40 <= len(run.rows) < 56


def test_an_empty_folder_has_no_evidence(tmp_path: Path) -> None:
    run = RunEvidence(tmp_path)

    assert run.is_empty and run.last_step == 0 and run.sample == []
    assert run_state(run).status == "unknown"
