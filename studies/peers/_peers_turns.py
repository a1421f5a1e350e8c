"""Turns of the trainings of `peers.py`: each works only in its own turns, so that all see the same load.

verl loads this module in every process of our side (`VERL_USE_EXTERNAL_MODULES`), where `PEERS_FOLDER` names the folder
of the training.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import Any

from verl_agentic.verl.import_hooks import when_imported

_POLL_S = 0.005


class Turns:
    """The turns of a training, in two files of its folder."""

    def __init__(self, folder: Path) -> None:
        """Names the folder; no turn is granted yet."""
        self._waiting, self._granted = folder / "waiting_for_step", folder / "granted_step"

    @property
    def waiting(self) -> int:
        """The step that the training waits for, or began last; 0 before the first one."""
        return _read(self._waiting)

    def grant(self, step: int) -> None:
        """Lets the training go on to the end of a step."""
        _write(self._granted, step)

    def wait(self, step: int) -> None:
        """Blocks the training until a step is granted."""
        _write(self._waiting, step)
        while _read(self._granted) < step:
            time.sleep(_POLL_S)


def _read(path: Path) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0


def _write(path: Path, step: int) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(str(step))
    partial.replace(path)


def _wait_in_every_step(folder: str) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    turns, begin = Turns(Path(folder)), PPOTrainer.on_step_begin

    @functools.wraps(begin)
    def wait_and_begin(self: Any) -> None:
        turns.wait(self.global_steps)
        begin(self)

    PPOTrainer.on_step_begin = wait_and_begin


if _folder := os.environ.get("PEERS_FOLDER"):
    when_imported("verl.trainer.ppo.v1.trainer_base", functools.partial(_wait_in_every_step, _folder))
