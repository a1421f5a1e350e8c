"""Report of a benchmark: ratios against their targets, and the machine and versions behind the numbers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parent.parent
_PACKAGES = ("verl-agentic", "verl", "torch", "transformers")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Bound that a value must reach."""

    bound: float
    at_least: bool = True
    is_goal: bool = False
    """A goal is reported but does not fail the benchmark."""

    def is_met(self, value: float | None) -> bool | None:
        """Returns whether the value reaches the bound; None for a value that could not be taken."""
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound}{' (goal)' if self.is_goal else ''}"


def report(
    name: str,
    *,
    ratios: Mapping[str, Any],
    figures: Mapping[str, Any],
    targets: Mapping[str, Target],
    reasons: Mapping[str, str] | None = None,
) -> int:
    """Prints the result as one line of JSON; returns the exit code: 1 when a target is missed.

    Args:
        name: of the benchmark.
        ratios: what is claimed; each compares two sides of this run.
        figures: what was measured, with units in the names; it depends on the machine.
        targets: for keys of `ratios` or `figures`.
        reasons: why a value is None; one for each of them.
    """
    values, reasons = {**ratios, **figures}, dict(reasons or {})
    unexplained = sorted(key for key, value in values.items() if value is None and key not in reasons)
    assert not unexplained, f"null without a reason: {unexplained}"
    verdicts = {
        key: {"value": values[key], "target": str(target), "ok": target.is_met(values[key])}
        for key, target in targets.items()
    }
    line = {
        "benchmark": name,
        "ratios": dict(ratios),
        "figures": dict(figures),
        "targets": verdicts,
        **({"reasons": reasons} if reasons else {}),
        "machine": machine(),
        "commit": commit(),
    }
    print(json.dumps(line), flush=True)
    missed = [key for key, target in targets.items() if verdicts[key]["ok"] is False and not target.is_goal]
    for key in missed:
        progress(f"missed: {key} is {values[key]}, the target is {targets[key]}")
    return 1 if missed else 0


def progress(text: str) -> None:
    """Writes a line to the terminal; standard output is kept for the result."""
    print(text, file=sys.stderr, flush=True)


def median(values: Sequence[float]) -> float:
    """Returns the median, rounded to what repeats: four digits."""
    middle = sorted(values)
    half = len(middle) // 2
    return float(f"{(middle[half] + middle[-half - 1]) / 2:.4g}")


def machine() -> dict[str, Any]:
    """Returns what the numbers depend on: processor, memory, versions, and who else was busy."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
    }


def commit() -> str | None:
    """Returns the checked-out commit, with `+changes` when files differ from it; None outside a checkout."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head and head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=_REPOSITORY, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
