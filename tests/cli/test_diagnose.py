"""`verl-agentic diagnose`: lines, exit codes, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.cli import main
from verl_agentic.log.reader import write_run

_MAKE = Path(__file__).parents[1] / "fixtures" / "broken_runs" / "make.py"


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def test_a_healthy_run_ends_with_0(broken_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(broken_runs.make("healthy", tmp_path))]) == 0

    shown = capsys.readouterr().out
    assert "nothing failed" in shown and "FAIL" not in shown


def test_a_broken_run_ends_with_1_and_says_where_to_begin(
    broken_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(broken_runs.make("observation_trained", tmp_path))]) == 1

    shown = capsys.readouterr().out
    assert "1 failed, begin with: mask" in shown
    assert "see: train/22/s22g0/0/0" in shown


@pytest.mark.slow
def test_the_checklist_comes_first_in_its_order(
    broken_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["diagnose", str(broken_runs.make("healthy", tmp_path)), "--json"])

    report = json.loads(capsys.readouterr().out)
    titles = [verdict["title"] for verdict in report["verdicts"]]
    assert titles[:5] == ["reward zeros", "truncation", "mask", "kl blowup", "entropy collapse"]
    assert titles[-2:] == ["health alarms", "run state"]
    assert report["ok"] is True and report["last_step"] == 24


@pytest.mark.slow
def test_json_has_the_evidence_in_numbers(broken_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(broken_runs.make("infra_failures", tmp_path)), "--json"]) == 1

    verdicts = {verdict["check"]: verdict for verdict in json.loads(capsys.readouterr().out)["verdicts"]}
    assert verdicts["infra_errors"]["status"] == "fail"
    assert verdicts["infra_errors"]["evidence"]["void_share"] == 0.5


@pytest.mark.slow
def test_prompts_are_listed_the_hardest_first(
    broken_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(broken_runs.make("healthy", tmp_path))

    main(["diagnose", folder, "--prompts", "3", "--json"])
    rows = json.loads(capsys.readouterr().out)["prompts"]
    main(["diagnose", folder, "--prompts", "3"])

    assert [row["rate"] for row in rows] == sorted(row["rate"] for row in rows) and len(rows) == 3
    assert rows[0]["prompt"].startswith("task-") and rows[0]["prompt"] in capsys.readouterr().out


def test_nothing_to_diagnose_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("no run")

    assert main(["diagnose", str(tmp_path)]) == 2
    assert main(["diagnose", str(tmp_path / "missing")]) == 2
    assert "nothing" in capsys.readouterr().err


def test_what_a_run_wrote_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episode = {"split": "train", "step": 1, "uid": "u", "place": "last", "role": "policy", "is_void": True}
    error = "\x1b[2J[red]gone[/red]\u202e"
    write_run(tmp_path, trajectories=[{**episode, "stop_reason": "infra_error", "error": error}])

    assert main(["diagnose", str(tmp_path)]) == 1

    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown and "\u202e" not in shown
    assert "\\u001b[2J[red]gone[/red]\\u202e" in shown


@pytest.mark.slow
def test_the_fixtures_are_made_by_a_command(broken_runs: Any, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(_MAKE), str(tmp_path)], check=True, capture_output=True, timeout=120)

    assert {path.name for path in tmp_path.iterdir()} == {"healthy", *broken_runs.FAULTS}


@pytest.mark.slow
def test_own_checks_come_last_and_count(broken_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = broken_runs.make("healthy", tmp_path / "run")
    own = tmp_path / "own.py"
    own.write_text(
        "from verl_agentic.base.finding import Finding\n"
        "def few_steps(run):\n"
        "    return Finding(status='fail', found=f'{run.last_step} steps', advice='train longer')\n"
    )
    assert main(["diagnose", str(run), "--json", "--check", f"{own}:few_steps"]) == 1
    last = json.loads(capsys.readouterr().out)["verdicts"][-1]
    assert (last["check"], last["found"]) == (f"{own}:few_steps", "24 steps")
    assert main(["diagnose", str(run), "--check", f"{own}:many_steps"]) == 2
    assert "many_steps" in capsys.readouterr().err
