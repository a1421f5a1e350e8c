"""Alarms: conditions on the history of a run's metrics.

An alarm returns a `Finding` while its condition holds. An alarm with several conditions names the one that holds in
`check`.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from verl_agentic.diagnostics.thresholds import has_risen
from verl_agentic.errors import ConfigError
from verl_agentic.finding import Finding
from verl_agentic.registry import Registry

Row = Mapping[str, float]
"""The metrics of one step."""
Quantity = str | Callable[[Row], float | None]
"""A metric, or a function of a row that returns None if the row lacks a metric."""

_HEAD, _TAIL = 100, 300


class History:
    """The metrics of a run that alarms read: the first 100 steps and the last 300.

    Metrics that are logged at some steps only, such as validation, keep their first 100 rows, too.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Makes a history of the rows of consecutive steps."""
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
            self._keep(self._tail.popleft())
        if len(self._head) < _HEAD and not self._tail:
            self._keep(row)
        else:
            self._tail.append(dict(row))

    def where(self, is_kept: Callable[[Row], bool]) -> History:
        """Returns a history of some of the rows."""
        return History(row for row in chain(self._head, self._tail) if is_kept(row))

    def _keep(self, row: Row) -> None:
        """Adds a row to the first ones if fewer than 100 of them have one of its metrics."""
        if any(self._kept[name] < _HEAD for name in row):
            self._kept.update(row.keys())
            self._head.append(dict(row))

    def matching(self, pattern: str) -> list[str]:
        """Returns the names of metrics that match a pattern such as `episode/stop/*`."""
        return sorted(fnmatch.filter(self.names, pattern))

    def first(self, quantity: Quantity, count: int) -> list[float]:
        """Returns the first finite values, at most `count`, in order."""
        return _values(quantity, chain(self._head, self._tail), count)

    def last(self, quantity: Quantity, count: int) -> list[float]:
        """Returns the last finite values, at most `count`, in order."""
        return _values(quantity, chain(reversed(self._tail), reversed(self._head)), count)[::-1]

    def level(self, quantity: Quantity, window: int) -> float | None:
        """Returns the median of the last `window` values; None while there are fewer."""
        values = self.last(quantity, window)
        return statistics.median(values) if len(values) == window else None

    def start(self, quantity: Quantity, window: int) -> float | None:
        """Returns the baseline: the median of the first `window` values; None while they overlap the last ones."""
        values = self.first(quantity, 2 * window)
        return statistics.median(values[:window]) if len(values) == 2 * window else None

    def best(self, quantity: Quantity, window: int) -> float | None:
        """Returns the highest median of `window` consecutive values before the last `window`; None without one."""
        values = self.first(quantity, len(self))
        medians = (statistics.median(values[end - window : end]) for end in range(window, len(values) - window + 1))
        return max(medians, default=None)


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A condition with its name, metrics and options; a call checks a history."""

    name: str
    what: str
    """Its condition, in a sentence."""
    reads: tuple[str, ...]
    """Metrics that it needs: names or patterns, with alternatives separated by `|`. `{name}` is the option of that
    name."""
    also: tuple[str, ...]
    """Optional metrics."""
    look: Callable[..., Finding | None] = field(repr=False)
    patience: int
    """Number of steps with new metrics for which the condition must hold to raise the alarm, or not hold to end it."""

    def __call__(self, history: History, **options: Any) -> Finding | None:
        """Returns the finding at the newest step; None without one, or if metrics are missing."""
        if self.missing(history.names, **options):
            return None
        return self.look(history, **{name: value for name, value in options.items() if name != "patience"})

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Its options with their defaults."""
        parameters = inspect.signature(self.look).parameters.values()
        return {"patience": self.patience, **{p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}}

    def missing(self, names: Iterable[str], **options: Any) -> list[str]:
        """Returns the metrics that it needs and that are not among the names."""
        names = list(names)
        return [need for need in self._needs(options) if not any(_matches(name, need) for name in names)]

    def has_news(self, row: Row, **options: Any) -> bool:
        """Returns whether a row has a metric that it needs."""
        return any(_matches(name, need) for need in self._needs(options) for name in row)

    def watches(self, name: str, **options: Any) -> bool:
        """Returns whether it reads a metric."""
        return any(_matches(name, need) for need in (*self._needs(options), *self.also))

    def _needs(self, options: Mapping[str, Any]) -> list[str]:
        return [need.format_map({**self.defaults, **options}) for need in self.reads]

    def check(self, options: Mapping[str, Any]) -> None:
        """Checks its options.

        Raises:
            ConfigError: an option is unknown or of the wrong type.
        """
        if unknown := sorted(set(options) - set(self.defaults)):
            raise ConfigError(f"the alarm {self.name} has no options {unknown}; it has {sorted(self.defaults)}")
        for name, value in options.items():
            _check_value(value, self.defaults[name], what=f"option {name} of the alarm {self.name}")


def alarm(
    *, reads: Sequence[str], also: Sequence[str] = (), patience: int = 3
) -> Callable[[Callable[..., Finding | None]], Alarm]:
    """Returns the decorator of an alarm: a function of the history, with keyword-only options.

    Args:
        reads: see `Alarm.reads`.
        also: see `Alarm.also`.
        patience: see `Alarm.patience`.
    """

    def to_alarm(look: Callable[..., Finding | None]) -> Alarm:
        what = (inspect.getdoc(look) or "").split("\n", 1)[0]
        return Alarm(name=look.__name__, what=what, reads=tuple(reads), also=tuple(also), look=look, patience=patience)

    return to_alarm


_REGISTRY = Registry[Alarm](package="verl_agentic.diagnostics.checks", what="alarm", kind=Alarm, decorator="alarm")
load_alarm, alarm_names = _REGISTRY.load, _REGISTRY.names


def first_of(*names: str) -> Quantity:
    """Returns the quantity of the first of these metrics that a row has."""
    return lambda row: next((row[name] for name in names if name in row), None)


def total(names: Sequence[str]) -> Quantity:
    """Returns the quantity that sums the metrics that a row has."""
    return lambda row: sum(found) if (found := [row[name] for name in names if name in row]) else None


def ratio(above: Quantity, below: Quantity) -> Quantity:
    """Returns the ratio of two quantities; None if the denominator is 0."""
    of_above, of_below = _reader(above), _reader(below)

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


def has_learnt(history: History, window: int) -> bool:
    """Returns whether the reward has risen; see `thresholds.has_risen`."""
    before, now = history.start(first_of(*REWARD), window), history.level(first_of(*REWARD), window)
    return before is not None and now is not None and has_risen(before, now)


@functools.lru_cache(maxsize=100_000)
def _matches(name: str, need: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern.strip()) for pattern in need.split("|"))


def _values(quantity: Quantity, rows: Iterable[Row], count: int) -> list[float]:
    found = (value for value in map(_reader(quantity), rows) if value is not None and math.isfinite(value))
    return list(islice(found, count))


def _reader(quantity: Quantity) -> Callable[[Row], float | None]:
    return quantity if callable(quantity) else lambda row: row.get(quantity)


def _check_value(value: Any, default: Any, *, what: str) -> None:
    if isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _HEAD // 2:
            raise ConfigError(f"{what} must be a whole number from 1 to {_HEAD // 2}, got {value!r}")
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{what} must be a finite number, got {value!r}")
    elif not isinstance(value, str):
        raise ConfigError(f"{what} must be text, got {value!r}")
