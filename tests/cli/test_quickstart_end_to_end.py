"""The whole quickstart, a few steps long: interrupted in the middle of GRPO, and then finished."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow
_START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a runner may have ignored it


def start(out: Path, log: Path) -> subprocess.Popen[bytes]:
    arguments = ["quickstart", "--out", str(out), "--sft-steps", "3", "--rl-steps", "3", "--eval-tasks", "4"]
    code = f"{_START}; from verl_agentic.cli import main; raise SystemExit(main({arguments!r}))"
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-c", code], stdout=file, stderr=file, cwd=out.parent)


def logged_steps(out: Path) -> list[int]:
    files = sorted((out / "logs").glob("rl_*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [json.loads(line)["step"] for line in files[-1].read_text().splitlines()] if files else []


@pytest.mark.nightly
def test_an_interrupted_run_leaves_nothing_behind_and_can_be_finished(tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    process = start(out, log)
    family: dict[int, psutil.Process] = {}
    deadline = time.monotonic() + 600
    while not logged_steps(out):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4_000:]
        family |= {child.pid: child for child in psutil.Process(process.pid).children(recursive=True)}
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 130
    assert "Run the same command to continue" in log.read_text()
    assert not psutil.wait_procs(list(family.values()), timeout=30)[1]

    started = (out / "phases" / "sft.json").stat().st_mtime
    assert start(out, log).wait(600) == 0, log.read_text()[-4_000:]
    assert (out / "phases" / "sft.json").stat().st_mtime == started, "a finished phase was done again"
    assert logged_steps(out)[-1] == 3
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["steps"], summary["num_eval_tasks"], summary["seed"]) == (3, 4, 0)
    assert (out / "report.html").is_file() and (out / "metrics.jsonl").is_file()
    assert (out / "checkpoint" / "model.safetensors").is_file()
