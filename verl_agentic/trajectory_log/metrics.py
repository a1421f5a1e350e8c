"""All metrics of a run, step by step, whatever loggers verl was told to use."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any
from uuid import uuid4

from verl_agentic.trajectory_log.lines import Lines, read_lines


class MetricsLog:
    """The metrics file of this process in a run's folder."""

    def __init__(self, folder: Path | str) -> None:
        """Writes nothing yet."""
        name = f"metrics-{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}.jsonl"
        self._lines = Lines(Path(folder) / name)

    def append(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes a step's metrics; what is no number is left out, and what is not finite is text."""
        self._lines.append({"step": step, "time": time.time(), "metrics": _numbers(metrics)})


def read_metrics(run_dir: Path | str) -> list[dict[str, Any]]:
    """Returns the metrics of every step below a folder, ascending: `{"step", "time", name: number, ...}`.

    Of a step that was logged twice, the later one counts. A line that was cut off is left out. Also read is what verl's
    logger `file` has written (`{"step", "data"}`), where nothing of ours is there.
    """
    root = Path(run_dir)
    found = [line for path in sorted(root.rglob("metrics-*.jsonl")) for line in _steps(path)]
    records = [
        {"step": line["step"], "time": line["time"], **{name: float(v) for name, v in line["metrics"].items()}}
        for line in found
        if "metrics" in line
    ]
    if not records:
        lines = [line for path in sorted(root.rglob("*.jsonl")) for line in _steps(path)]
        records = [{"step": line["step"], "time": None, **line["data"]} for line in lines if _is_of_verl(line)]
    records.sort(key=lambda record: record["time"] or 0.0)
    return [record for _, record in sorted({record["step"]: record for record in records}.items())]


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for name, value in metrics.items():
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        if isinstance(value, Real):
            # JSON has no word for these: "nan", "inf", "-inf".
            found[name] = float(value) if math.isfinite(value) else str(float(value))
    return found


def _steps(path: Path) -> Iterator[dict[str, Any]]:
    return (record for record in read_lines(path) if isinstance(record.get("step"), int))


def _is_of_verl(line: Mapping[str, Any]) -> bool:
    # verl's SFT trainer logs in the same form.
    data = line.get("data")
    return isinstance(data, dict) and not any(name.startswith("train/") for name in data)
