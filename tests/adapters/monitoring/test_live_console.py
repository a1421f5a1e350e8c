"""The live view in the terminal of a run's driver."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from omegaconf import OmegaConf
from verl.utils.logger.aggregate_logger import LocalLogger

from verl_agentic.verl.extensions.monitoring.console_line import short_console
from verl_agentic.verl.extensions.monitoring.live_console import has_live_view, show_in_terminal
from verl_agentic.verl.extensions.monitoring.monitoring_features import watch_progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[str]]:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with os.fdopen(theirs, "w") as stream:
        yield stream
    os.close(ours)


def test_steps_of_a_run_in_a_terminal_are_in_its_live_view_instead_of_lines(
    terminal: IO[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_ppo(config: str) -> str:
        with short_console(num_steps=2):
            LocalLogger().log({"episode/acc": 0.5}, 1)
        return f"{config}: {has_live_view()}"

    run = show_in_terminal(run_ppo, tmp_path)
    assert run("piped") == "piped: False" and "acc 0.50" in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        assert run("typed") == "typed: True" and not has_live_view()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("log", "logger", "is_shown"),
    [
        ({"dir": "runs/mine"}, ["console"], True),
        ({"dir": "runs/mine", "console": "live"}, ["console"], True),
        ({"dir": "runs/mine", "console": "short"}, ["console"], False),
        ({"dir": "runs/mine"}, ["wandb"], False),
        ({}, ["console"], False),
    ],
)
def test_a_run_with_a_log_and_verls_console_shows_its_progress(
    log: dict[str, Any], logger: list[str], is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_AGENTIC_RUN_DIR", raising=False)
    rollout = {"custom": {"agentic": {"log": log}}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "trainer": {"logger": logger}})
    main: dict[str, Any] = {"run_ppo": print}
    watch_progress(config, main)
    assert (main["run_ppo"] is not print) == is_shown
