"""The live view of a run: progress, the numbers of its last steps, its last alarm."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from verl_agentic.log.run_files import ENDED
from verl_agentic.observe.live.step_line import format_numbers, format_validation
from verl_agentic.observe.live.terminal_foot import TerminalFoot

_NUM_STEPS_SHOWN = 4
_HEIGHT = _NUM_STEPS_SHOWN + 4
_EVERY_S = 1.0
_METRICS, _FINDINGS = "metrics-*.jsonl", "health.jsonl"
_FILES = (_METRICS, _FINDINGS, ENDED)
_TAIL_BYTES = 131_072
"""More than the last steps take in the log of metrics."""
_HEADINGS = {"groups without signal": "no signal", "tool errors": "errors", "gradient": "grad", "seconds": "s"}
"""Label of a line -> heading of a column, so that all fit into 80 characters."""


class LiveView:
    """Reads the log of a run, and renders its progress as lines of text."""

    def __init__(self, folder: Path, console: Console, *, began_at: float) -> None:
        """Reads nothing yet.

        Args:
            folder: of the run's log.
            console: gives width and colours; nothing is printed.
            began_at: earlier records are of other runs in the same folder.
        """
        self._folder, self._console, self._began_at = folder, console, began_at
        self._steps: dict[int, dict[str, Any]] = {}
        self._validation = ""
        self._state: list[Any] = []
        self._lines: list[str] = []
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("so far,"),
            TimeRemainingColumn(),
            TextColumn("to go"),
            speed_estimate_period=3600.0,
        )
        self._task = self._progress.add_task("", total=None)

    def render(self) -> list[str]:
        """Returns the lines of the view. All but the bar are the same until a file of the log or the width changes."""
        state = [self._console.width, *((path, path.stat().st_size) for name in _FILES for path in self._find(name))]
        if state != self._state:
            self._read_log()
            tables = Group(self._make_table(), self._make_validation(), self._make_alarm())
            self._state, self._lines = state, self._print(tables)
        return [*self._print(self._progress.get_renderable()), *self._lines]

    def _print(self, view: RenderableType) -> list[str]:
        with self._console.capture() as capture:
            self._console.print(view, no_wrap=True, overflow="ellipsis", crop=True)
        return capture.get().splitlines()

    def _read_log(self) -> None:
        for record in self._read_tails(_METRICS):
            self._steps.setdefault(record["step"], {}).update(record["metrics"])
        self._steps = dict(sorted(self._steps.items())[-_NUM_STEPS_SHOWN:])
        num_steps = [record["num_steps"] for record in self._read_tails(ENDED) if "num_steps" in record]
        self._progress.update(
            self._task, completed=max(self._steps, default=0), total=num_steps[-1] if num_steps else None
        )

    def _make_table(self) -> Table:
        rows = {step: numbers for step, metrics in self._steps.items() if (numbers := format_numbers(metrics))}
        labels = list(dict.fromkeys(label for numbers in rows.values() for label in numbers))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_header=bool(rows))
        for label in ["step", *labels]:
            table.add_column(_HEADINGS.get(label, label), justify="right", no_wrap=True)
        for step, numbers in rows.items():
            table.add_row(str(step), *(numbers.get(label, "") for label in labels))
        return table

    def _make_validation(self) -> Text:
        for step, metrics in self._steps.items():
            if results := format_validation(metrics):
                self._validation = f"validation at step {step}: {', '.join(results)}"
        return Text(self._validation or "no validation yet", style="" if self._validation else "dim")

    def _make_alarm(self) -> Text:
        findings = list(self._read_tails(_FINDINGS))
        if not findings:
            return Text("no alarm", style="dim")
        last = findings[-1]
        return Text(f"alarm {last['name']} at step {last['step']}: {last['message']}", style="yellow")

    def _find(self, name: str) -> list[Path]:
        return sorted(self._folder.glob(name))

    def _read_tails(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Yields the last records of this run in files."""
        for path in self._find(name):
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(max(0, size - _TAIL_BYTES))
                lines = file.read().splitlines()
            for line in lines:
                record = _parse_line(line)
                if record.get("time", -1.0) >= self._began_at:
                    yield record


def _parse_line(line: bytes) -> Mapping[str, Any]:
    """Returns a record; an empty one of the first or last line of a tail, which may be incomplete."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def can_show(stream: IO[str]) -> bool:
    """Tells whether a live view can be shown: in a terminal that is high enough, not in a notebook's."""
    is_dumb = os.environ.get("TERM") in ("dumb", "unknown")  # rich finds none where FORCE_COLOR is empty
    if not stream.isatty() or is_dumb or "JPY_PARENT_PID" in os.environ:
        return False
    return TerminalFoot(stream, height=_HEIGHT).fits()


@contextlib.contextmanager
def show_run(folder: Path, stream: IO[str]) -> Iterator[None]:
    """Shows the live view of a run while the block runs, and its last state after it."""
    view = LiveView(folder, Console(file=stream), began_at=time.time())
    foot = TerminalFoot(stream, height=_HEIGHT)
    has_ended = threading.Event()

    def draw_often() -> None:
        while not has_ended.wait(_EVERY_S):
            with contextlib.suppress(Exception):  # nothing that is wrong with a view may end a run
                foot.draw(view.render())

    thread = threading.Thread(target=draw_often, name="live view", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        lines: list[str] = []
        with contextlib.suppress(Exception):
            lines = view.render()
        with contextlib.suppress(OSError):  # the terminal is gone
            foot.close(lines)
