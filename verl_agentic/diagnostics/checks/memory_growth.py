"""Alarm: memory leaks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.diagnostics.thresholds import (
    MEMORY_ADVICE,
    MEMORY_GROWTH,
    MEMORY_MIN_GB,
    MEMORY_STEADINESS,
    MEMORY_WINDOW,
)
from verl_agentic.finding import Finding, warn

_HOST, _DEVICE = "*perf/cpu_memory_used_gb", "*perf/max_memory_allocated_gb"


@alarm(reads=(f"{_HOST}|{_DEVICE}",), patience=5)
def memory_growth(
    history: History,
    *,
    growth: float = MEMORY_GROWTH,
    least_gb: float = MEMORY_MIN_GB,
    steadiness: float = MEMORY_STEADINESS,
    window: int = MEMORY_WINDOW,
) -> Finding | None:
    """Memory of a machine or device grows step by step.

    Args:
        growth: in the window, as a share of the memory at its beginning.
        least_gb: minimum growth in the window.
        steadiness: Kendall's tau with time, 1 if every step takes more than all before. A leak only grows; caches and
            other users of the machine also give memory back.
        window: number of steps.
    """
    worst: tuple[float, str, list[float]] | None = None
    for pattern in (_HOST, _DEVICE):
        for name in history.matching(pattern):
            values = history.last(name, window)
            if len(values) < window:
                continue
            gained = steady_growth(values, growth=growth, min_gain=least_gb, steadiness=steadiness)
            if gained is not None and (worst is None or gained > worst[0]):
                worst = (gained, name, values)
    if worst is None:
        return None
    gained, name, values = worst
    return warn(
        found=f"{name} grew by {gained:.3g} GB in {window} steps, to {values[-1]:.3g} GB (limit {growth:.0%} and "
        f"{least_gb:g} GB)",
        evidence={"metric": name, "grown_gb": gained, "now_gb": values[-1], "gb_per_step": gained / (window - 1)},
        advice=MEMORY_ADVICE["host" if name.endswith("cpu_memory_used_gb") else "device"],
        check=name,
    )


def steady_growth(
    values: Sequence[float],
    *,
    growth: float = MEMORY_GROWTH,
    min_gain: float = MEMORY_MIN_GB,
    steadiness: float = MEMORY_STEADINESS,
) -> float | None:
    """Returns the growth of values; None if it is too small or unsteady. See `memory_growth`."""
    if _tau(values) < steadiness:
        return None
    gained = _slope(values) * (len(values) - 1)
    return gained if gained >= max(min_gain, growth * abs(values[0])) else None


def _slope(values: Sequence[float]) -> float:
    """Returns the median of the slopes of all pairs (Theil-Sen)."""
    pairs = ((i, j) for j in range(len(values)) for i in range(j))
    return statistics.median((values[j] - values[i]) / (j - i) for i, j in pairs)


def _tau(values: Sequence[float]) -> float:
    """Returns Kendall's tau with time: the share of pairs that rise less that of pairs that fall."""
    signs = [(values[j] > values[i]) - (values[j] < values[i]) for j in range(len(values)) for i in range(j)]
    return sum(signs) / len(signs)
