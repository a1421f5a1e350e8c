"""Healthy checkpoints of a run are retained, and newer ones can be moved aside.

A checkpoint is healthy for an alarm if the alarm was evaluated later and did not fire. verl saves before the metrics of
the step are known.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)
HEALTHY = "healthy_iterations.txt"
"""File next to the checkpoints: the steps to retain, on one line."""
UNHEALTHY = "unhealthy"
"""Folder next to the checkpoints for those moved aside."""
_STEP = "global_step_"
_LATEST = "latest_checkpointed_iteration.txt"


class Checkpoints:
    """The checkpoints for rollbacks of a run."""

    def __init__(self, root: Path, *, begun_at: int, resumed_from: Path | None = None) -> None:
        """Finds those of earlier processes.

        Args:
            root: verl's `trainer.default_local_dir`.
            begun_at: step whose checkpoint was loaded; 0 for a new run.
            resumed_from: folder of that checkpoint, if it is not below `root`.
        """
        self.root = Path(os.path.abspath(root))
        paths_by_step = {int(path.name.removeprefix(_STEP)): path for path in _step_folders(self.root)}
        self._folders = {step: path for step, path in paths_by_step.items() if 0 < step <= begun_at}
        if resumed_from is not None and begun_at:
            self._folders[begun_at] = Path(os.path.abspath(resumed_from))
        self._kept: list[int] = []

    def note(self, step: int, *, root: Path) -> None:
        """Records that verl saved a step into a folder; ignores other folders."""
        if Path(os.path.abspath(root)) == self.root:
            self._folders[step] = self.root / f"{_STEP}{step}"

    def has(self, step: int) -> bool:
        """Returns whether a step was saved."""
        return step in self._folders

    def folder(self, step: int) -> Path:
        """Returns the folder of a checkpoint that was saved."""
        return self._folders[step]

    def newest(self, until: int) -> int | None:
        """Returns the newest saved step up to `until`, or None."""
        return max((step for step in self._folders if step <= until), default=None)

    def keep(self, steps: Iterable[int]) -> None:
        """Retains exactly these steps."""
        unique_steps = sorted(set(steps))
        if unique_steps == self._kept and (self.root / HEALTHY).exists() == bool(unique_steps):
            return
        self._kept = unique_steps
        if unique_steps:
            _write_atomically(self.root / HEALTHY, " ".join(map(str, unique_steps)))
        else:
            (self.root / HEALTHY).unlink(missing_ok=True)

    def put_aside(self, *, after: int) -> None:
        """Moves the checkpoints after a step into `unhealthy/`, so that verl resumes from the step."""
        moved = sorted(step for step in self._folders if step > after)
        for step in moved:
            source, target = self._folders.pop(step), self.aside / f"{_STEP}{step}"
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, _find_unused_path(target))
            except OSError as cause:
                logger.warning("the checkpoint of step %d was not moved to %s: %s", step, target, cause)
        if _read_text(self.root / _LATEST) not in map(str, moved):
            return
        if after in self._folders and self._folders[after].parent == self.root:
            _write_atomically(self.root / _LATEST, str(after))
        else:
            (self.root / _LATEST).unlink(missing_ok=True)

    @property
    def aside(self) -> Path:
        """Folder of unhealthy checkpoints."""
        return self.root / UNHEALTHY


def kept_steps(root: Path) -> set[int]:
    """Returns the steps to retain."""
    return {int(step) for step in _read_text(root / HEALTHY).split() if step.isdecimal()}


def is_kept(path: str | Path) -> bool:
    """Returns whether a model's folder, `<root>/global_step_<n>/<role>`, belongs to a retained checkpoint."""
    step = Path(path).parent
    return step.name.removeprefix(_STEP) in {str(number) for number in kept_steps(step.parent)}


def _step_folders(root: Path) -> list[Path]:
    """Returns the checkpoints below a folder that still hold an actor."""
    return [p for p in root.glob(f"{_STEP}*") if p.name.removeprefix(_STEP).isdecimal() and (p / "actor").is_dir()]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _find_unused_path(path: Path) -> Path:
    """Returns an unused path: this one, or with a number before the name."""
    number = 2
    free = path
    while free.exists():
        free, number = path.with_name(f"{number}-{path.name}"), number + 1
    return free


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.tmp")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
