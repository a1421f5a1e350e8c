"""Functions of a metric's values over the steps of a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Series = list[tuple[int, float]]
RECENT_STEPS = 10
"""Number of last steps that count as recent."""


def ends(series: Series, *, window: int = RECENT_STEPS) -> tuple[float, float]:
    """Returns medians of the first and of the last steps; windows of a short series are a third of it."""
    values = [value for _, value in series]
    width = max(1, min(window, len(values) // 3))
    return float(np.median(values[:width])), float(np.median(values[-width:]))


def recent_mean(series: Series) -> float:
    """Returns the mean over the last steps."""
    return float(np.mean([value for _, value in series[-RECENT_STEPS:]]))


def since(series: Series, is_bad: Callable[[float], bool]) -> int | None:
    """Returns the first step of the bad values at the end of the series; None if its last value is good."""
    first = None
    for step, value in reversed(series):
        if not is_bad(value):
            break
        first = step
    return first
