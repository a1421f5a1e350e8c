"""The progress display of a run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from verl_agentic.observe.live.step_line import list_alarms

_TITLES = {"model": "prepare the model", "data": "make tasks and demonstrations", "eval": "evaluate held-out tasks:"}
"""First word of a phase's name -> what is shown in its place."""


class Display:
    """A line with a bar for each phase; where the output is no terminal, a plain line for each that has ended."""

    def __init__(self) -> None:
        self.console = Console()
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", table_column=Column()),  # wraps, so that all figures fit
            BarColumn(bar_width=12),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("[dim]{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("", visible=False, note="")
        self._waiting: dict[str, TaskID] = {}

    def announce(self, phases: Iterable[tuple[str, str]]) -> None:
        """Shows phases that are to come, by name and title."""
        for name, title in phases:
            label = f"[dim]{_label_phase(name, title)}"
            self._waiting[name] = self._progress.add_task(label, start=False, total=None, note="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextlib.contextmanager
    def phase(self, name: str, title: str = "") -> Iterator[Display]:
        """Shows a phase while its block runs; a stage has a title behind its name."""
        if name not in self._waiting:
            self.announce([(name, title)])
        self._task = self._waiting.pop(name)
        self._progress.update(self._task, description=_label_phase(name, title))
        self._progress.start_task(self._task)
        yield self
        task = self._progress.tasks[self._task]
        self._progress.update(self._task, total=task.total or 1, completed=task.total or 1)
        if self._progress.disable:
            notes = ", ".join(filter(None, [f"{task.elapsed:.0f} s", task.fields["note"]]))
            print(f"{_label_phase(name, title)}: {notes}", flush=True)

    def reused(self, run: str = "") -> None:
        """Marks the phase as done before, by the run that is named or by this one."""
        self._progress.update(self._task, note=f"already done in {run}" if run else "already done")

    def advance(self, completed: int, total: int) -> None:
        """Moves the bar."""
        self._progress.update(self._task, completed=completed, total=total)

    def follow(self, metrics: Path, steps: int, metric: str) -> None:
        """Moves the bar by the steps in verl's log, and shows the newest value of a metric."""
        last = _last_record(metrics)
        if last is None:
            self._progress.update(self._task, total=steps, note="starting")
        else:
            value = last["data"].get(metric)
            notes = [] if value is None else [f"{metric} {value:.3f}"]  # verl's log writes nan as null
            notes += [f"alarm {name}" for name in list_alarms(last["data"])]
            note = ", ".join(notes)
            self._progress.update(self._task, total=steps, completed=last["step"], note=note)


def _label_phase(name: str, title: str) -> str:
    first, _, rest = name.partition(" ")
    return f"{name}: {title}" if title else f"{_TITLES[first]} {rest}".strip()


def _last_record(metrics: Path) -> dict | None:
    """Returns the last complete line of a growing file."""
    if not metrics.is_file():
        return None
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 65_536))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
    return json.loads(lines[-1]) if lines else None
