"""The progress display of the quickstart fits into a narrow terminal."""

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
