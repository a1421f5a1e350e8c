"""The history of a run's metrics, and quantities of it."""

from __future__ import annotations

import fnmatch
import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice

Row = Mapping[str, float]
"""The metrics of one step."""
Quantity = str | Callable[[Row], float | None]
"""A metric, or a function of a row that returns None if the row lacks a metric."""

MAX_FIRST, _TAIL = 100, 300
_MIN_GAIN = 0.05


class History:
    """The metrics of a run that alarms read: the first 100 steps and the last 300.

    Metrics that are logged at some steps only, such as validation, keep their first 100 rows, too.
    """

    def __init__(self, rows: Iterable[Row] = (), *, is_over: bool = False) -> None:
        """Makes a history.

        Args:
            rows: of consecutive steps.
            is_over: whether no more rows come. Windows are then at most half of a metric's values, so that a short run
                is judged, too.
        """
        self._is_over = is_over
        self._head: list[dict[str, float]] = []
        self._kept: Counter[str] = Counter()
        self._tail: deque[dict[str, float]] = deque(maxlen=_TAIL)
        self.names: set[str] = set()
        """All metrics so far."""
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self._head) + len(self._tail)

    @property
    def now(self) -> Row:
        """The newest row."""
        return self._tail[-1] if self._tail else self._head[-1]

    def add(self, row: Row) -> None:
        """Appends the row of the next step."""
        self.names.update(row)
        if len(self._tail) == _TAIL:
            self._add_first(self._tail.popleft())
        if len(self._head) < MAX_FIRST and not self._tail:
            self._add_first(row)
        else:
            self._tail.append(dict(row))

    def where(self, is_kept: Callable[[Row], bool]) -> History:
        """Returns a history of some of the rows."""
        return History(row for row in chain(self._head, self._tail) if is_kept(row))

    def _add_first(self, row: Row) -> None:
        """Adds a row to the first ones if fewer than 100 of them have one of its metrics."""
        if any(self._kept[name] < MAX_FIRST for name in row):
            self._kept.update(row.keys())
            self._head.append(dict(row))

    def matching(self, pattern: str) -> list[str]:
        """Returns the names of metrics that match a pattern such as `episode/stop/*`."""
        return sorted(fnmatch.filter(self.names, pattern))

    def first(self, quantity: Quantity, count: int) -> list[float]:
        """Returns the first finite values, at most `count`, in order."""
        return _take_values(quantity, chain(self._head, self._tail), count)

    def last(self, quantity: Quantity, count: int) -> list[float]:
        """Returns the last finite values, at most `count`, in order."""
        return _take_values(quantity, chain(reversed(self._tail), reversed(self._head)), count)[::-1]

    def level(self, quantity: Quantity, window: int) -> float | None:
        """Returns the median of the last `window` values; None while there are fewer."""
        window = self._fit_window(quantity, window)
        values = self.last(quantity, window)
        return statistics.median(values) if len(values) == window else None

    def start(self, quantity: Quantity, window: int) -> float | None:
        """Returns the baseline: the median of the first `window` values; None while they overlap the last ones."""
        window = self._fit_window(quantity, window)
        values = self.first(quantity, 2 * window)
        return statistics.median(values[:window]) if len(values) == 2 * window else None

    def best(self, quantity: Quantity, window: int) -> float | None:
        """Returns the highest median of `window` consecutive values before the last `window`; None without one."""
        window = self._fit_window(quantity, window)
        values = self.first(quantity, len(self))
        medians = (statistics.median(values[end - window : end]) for end in range(window, len(values) - window + 1))
        return max(medians, default=None)

    def _fit_window(self, quantity: Quantity, window: int) -> int:
        """Returns the window, or half of the quantity's values if the run is over and has fewer."""
        return max(1, min(window, len(self.first(quantity, 2 * window)) // 2)) if self._is_over else window


def first_of(*names: str) -> Quantity:
    """Returns the quantity of the first of these metrics that a row has."""
    return lambda row: next((row[name] for name in names if name in row), None)


def total(names: Sequence[str]) -> Quantity:
    """Returns the quantity that sums the metrics that a row has."""
    return lambda row: sum(values) if (values := [row[name] for name in names if name in row]) else None


def ratio(above: Quantity, below: Quantity) -> Quantity:
    """Returns the ratio of two quantities; None if the denominator is 0."""
    of_above, of_below = _make_reader(above), _make_reader(below)

    def read(row: Row) -> float | None:
        numerator, denominator = of_above(row), of_below(row)
        return None if numerator is None or not denominator else numerator / denominator

    return read


REWARD = ("episode/acc", "episode/score", "critic/score/mean")
"""Metrics of success, the raw outcome first."""


def gain(history: History, window: int) -> float | None:
    """Returns the reward's median over the last `window` steps less that over the first."""
    before, now = history.start(first_of(*REWARD), window), history.level(first_of(*REWARD), window)
    return None if before is None or now is None else now - before


def has_risen(before: float, now: float) -> bool:
    """Returns whether a reward has risen by at least 0.05, or 5 % of its size if that is more."""
    return now - before >= _MIN_GAIN * max(1.0, abs(before))


def has_learnt(history: History, window: int) -> bool:
    """Returns whether the reward has risen; see `has_risen`."""
    before, now = history.start(first_of(*REWARD), window), history.level(first_of(*REWARD), window)
    return before is not None and now is not None and has_risen(before, now)


def _take_values(quantity: Quantity, rows: Iterable[Row], count: int) -> list[float]:
    values = (value for value in map(_make_reader(quantity), rows) if value is not None and math.isfinite(value))
    return list(islice(values, count))


def _make_reader(quantity: Quantity) -> Callable[[Row], float | None]:
    return quantity if callable(quantity) else lambda row: row.get(quantity)
