"""The progress display of the quickstart: in a narrow terminal, and in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_agentic.cpu.quickstart.display import Display


def test_no_figure_is_cut_off_in_a_terminal_of_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    log = tmp_path / "metrics.jsonl"
    log.write_text(json.dumps({"step": 1200, "data": {"episode/acc": 0.5}}) + "\n")
    with Display() as display, display.phase("rl", "python -m verl.trainer.main_ppo"):
        display.follow(log, 6000, "episode/acc")
        display.console.print(display._progress.get_renderable())
    shown = capsys.readouterr().out
    assert "1200/6000 0:00:0" in shown and "episode/acc 0.500" in shown and "…" not in shown


def test_a_raised_alarm_is_shown_until_the_step_without_it(tmp_path: Path) -> None:
    display, log = Display(), tmp_path / "metrics.jsonl"
    with display.phase("rl", "python -m verl.trainer.main_ppo"):
        for alarm, note in ((1.0, "episode/acc 0.500, alarm starved"), (0.0, "episode/acc 0.500")):
            log.write_text(json.dumps({"step": 1, "data": {"episode/acc": 0.5, "health/starved": alarm}}) + "\n")
            display.follow(log, 60, "episode/acc")
            assert display._progress.tasks[display._task].fields["note"] == note


def test_a_file_has_a_line_for_each_phase_that_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as display:
        display.announce([("model", ""), ("eval base", "")])
        with display.phase("model"):
            display.reused()
        assert capsys.readouterr().out == "prepare the model: 0 s, already done\n"
        with display.phase("eval base"):
            display.advance(3, 8)
    assert capsys.readouterr().out == "evaluate held-out tasks: base: 0 s\n"
