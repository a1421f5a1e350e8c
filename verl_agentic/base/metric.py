"""The description of metrics: what a number means, and how the updates of one step are joined.

verl's `separate_async` makes several updates in a step, and joins their metrics by words in the names (`max`, `min`,
`sum`). The metrics of this package are joined by their descriptions instead. Each module that makes metrics has a tuple
`METRICS` of them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Join = Literal["mean", "sum", "max", "min", "last"]
NUM_EPISODES = "episode/episodes"
"""Metric whose value is the weight of an update, unless a metric has its own (`CountedMean`)."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The meaning of a metric."""

    name: str
    """A pattern, such as `episode/stop/*`."""
    unit: str
    per: str
    """Denominator: what the number is a mean over or a share of; "step" for a number of the whole step."""
    rows: str
    """Rows or episodes that count."""
    join: Join = "mean"
    """How the updates of a step are joined; a mean is weighted by the denominators of the updates."""
    is_0_if_absent: bool = False
    """Whether an update without the metric counts as 0."""


class CountedMean(float):
    """A mean that knows the number of its values, so that means can be joined."""

    count: float

    def __new__(cls, value: float, *, count: float = 0.0) -> CountedMean:
        """Makes a mean of `count` values."""
        mean = super().__new__(cls, value)
        mean.count = float(count)
        return mean


def find_metric(name: str, table: Sequence[Metric]) -> Metric | None:
    """Returns the first description whose pattern matches a name."""
    return next((metric for metric in table if fnmatch.fnmatchcase(name, metric.name)), None)


def join_updates(
    updates: Sequence[Mapping[str, float]], row_counts: Sequence[int], *, table: Sequence[Metric]
) -> dict[str, float]:
    """Returns the metrics of a step from those of its updates, as plain floats: verl's loggers take no subclasses.

    Args:
        updates: metrics of every update in order; each may lack some.
        row_counts: rows of every update: the weight of an update that reports no number of episodes.
        table: descriptions of all these metrics.
    """
    sizes = [float(update.get(NUM_EPISODES, count)) for update, count in zip(updates, row_counts, strict=True)]
    metrics = {}
    for name in dict.fromkeys(name for update in updates for name in update):
        metric = find_metric(name, table)
        assert metric is not None, name
        pairs = [(update.get(name), size) for update, size in zip(updates, sizes, strict=True)]
        if metric.is_0_if_absent:
            pairs = [(0.0 if value is None else value, size) for value, size in pairs]
        present = [(value, size) for value, size in pairs if value is not None]
        metrics[name] = _join_values(metric.join, [value for value, _ in present], [size for _, size in present])
    return metrics


def _join_values(how: Join, values: Sequence[float], sizes: Sequence[float]) -> float:
    if how == "mean":
        weights = [
            value.count if isinstance(value, CountedMean) else size for value, size in zip(values, sizes, strict=True)
        ]
        total = sum(weights)
        if not total:
            return float(sum(values) / len(values))
        return float(sum(v * w for v, w in zip(values, weights, strict=True) if w) / total)
    if how == "last":
        return float(values[-1])
    return float({"sum": sum, "max": max, "min": min}[how](values))
