"""The metrics of a run, step by step, independent of verl's loggers."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any
from uuid import uuid4

from verl_agentic.log.lines import Lines, read_lines


class MetricsLog:
    """The metrics file of this process in a run's folder."""

    def __init__(self, folder: Path | str) -> None:
        """Opens nothing yet."""
        name = f"metrics-{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}.jsonl"
        self._lines = Lines(Path(folder) / name)

    def append(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes a step's metrics: numbers only; non-finite numbers become text."""
        self._lines.append({"step": step, "time": time.time(), "metrics": _select_numbers(metrics)})


def read_metrics(run_dir: Path | str, *, with_verls: bool = True) -> list[dict[str, Any]]:
    """Returns the metrics of every step below a folder, ascending: `{"step", "time", name: number, ...}`.

    Several records of a step are merged; the later value of a name counts. Incomplete lines are left out.

    Args:
        with_verls: read the records of verl's logger `file` (`{"step", "data"}`) if there are none of ours.
    """
    root = Path(run_dir)
    records = [line for path in sorted(root.rglob("metrics-*.jsonl")) for line in _iter_steps(path, "metrics")]
    if not records and with_verls:
        lines = [line for path in sorted(root.rglob("*.jsonl")) for line in _iter_steps(path, "data")]
        # verl's SFT trainer logs in the same form.
        records = [line for line in lines if not any(name.startswith("train/") for name in line)]
    steps: dict[int, dict[str, Any]] = {}
    for record in sorted(records, key=lambda record: record["time"] or 0.0):
        steps.setdefault(record["step"], {}).update(record)
    return [steps[step] for step in sorted(steps)]


def _select_numbers(metrics: Mapping[str, Any]) -> dict[str, float | str]:
    numbers: dict[str, float | str] = {}
    for name, value in metrics.items():
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        if isinstance(value, Real):
            # Not in JSON: "nan", "inf", "-inf".
            numbers[name] = float(value) if math.isfinite(value) else str(float(value))
    return numbers


def _iter_steps(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yields the steps of a file with their metrics under a key; other lines are skipped."""
    for record in read_lines(path):
        values, timestamp = record.get(key), record.get("time")
        if isinstance(record.get("step"), int) and isinstance(values, dict):
            when = float(timestamp) if isinstance(timestamp, Real) else None
            yield {"step": record["step"], "time": when, **_select_floats(values)}


def _select_floats(values: Mapping[str, Any]) -> dict[str, float]:
    numbers = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError):
            numbers[name] = float(value)
    return numbers
