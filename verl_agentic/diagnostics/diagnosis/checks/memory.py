"""Line 20: memory of the machine."""

from __future__ import annotations

import numpy as np

from verl_agentic.diagnostics.checks.memory_growth import steady_growth
from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, Series, ends
from verl_agentic.diagnostics.thresholds import MEMORY_ADVICE, MEMORY_WINDOW, Limit
from verl_agentic.finding import Finding, unknown

_NAMES = ("perf/cpu_memory_used_gb", "actor/perf/cpu_memory_used_gb")
_SLOW = Limit(warn=1.5, fail=2.0)
"""Ratio to the beginning of the run: a leak that is too slow for an alarm's window."""
_STEADY = 0.8
"""Minimum share of pairs of steps between which it grew. Other programs of the machine come and go, a leak only
grows."""
_KEPT = 0.9
"""Share of the peak; with less at the end, the memory was released."""
_MIN_STEPS = 6


def memory(run: RunEvidence) -> Finding:
    """Returns whether host memory grows steadily; a leak ends a run long after it began."""
    series = run.series(*_NAMES)
    if not series:
        return unknown(f"memory was not logged: {' or '.join(_NAMES)}")
    before, now = ends(series)
    gpu = run.series("actor/perf/max_memory_allocated_gb", "perf/max_memory_allocated_gb")
    found = f"host memory (of the whole machine) {before:.3g} -> {now:.3g} GB"
    found += f", accelerator peak {max(value for _, value in gpu):.3g} GB" if gpu else ""
    slope = _slope(series)
    evidence = {"before_gb": before, "now_gb": now, "gb_per_step": slope}
    peak = max(value for _, value in series)
    is_given_back = series[-1][1] < _KEPT * peak
    recent = [value for _, value in series[-MEMORY_WINDOW:]]
    gained = steady_growth(recent) if len(recent) == MEMORY_WINDOW else None
    is_slow = len(series) >= _MIN_STEPS and _steadiness(series) >= _STEADY
    status = _SLOW.judge(now / before) if is_slow and before else "ok"
    if is_given_back or (status == "ok" and gained is None):
        found += f"; {series[-1][1]:.3g} at the end, peak {peak:.3g}" if is_given_back else ""
        return Finding(status="ok", found=found, evidence=evidence)
    if status == "ok":
        found += f"; {gained:.3g} GB of it in the last {MEMORY_WINDOW} steps"
    found += f": it grows steadily, {slope * 100:.3g} GB in 100 steps, since step {series[0][0]}"
    return Finding(
        status="fail" if status == "fail" else "warn",
        found=found,
        advice=MEMORY_ADVICE["host"],
        evidence=evidence,
    )


def _slope(series: Series) -> float:
    """Returns the median growth per step between the ends of the series and the points across its half."""
    steps, values = np.asarray(series, dtype=np.float64).T
    half = len(values) // 2
    if not half:
        return 0.0
    return float(
        np.median((values[half:] - values[: len(values) - half]) / (steps[half:] - steps[: len(steps) - half]))
    )


def _steadiness(series: Series) -> float:
    values = np.asarray(series, dtype=np.float64)[:, 1]
    half = len(values) // 2
    return float((values[half:] > values[: len(values) - half]).mean())
