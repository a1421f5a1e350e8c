"""What an alarm is: a condition on the history of a run's metrics.

An alarm returns a `Finding` while its condition holds. One that looks for several things names the one it found in
`check`: another one is another finding.
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
"""A metric, or what is computed of a row; None where the row lacks what it takes."""

_HEAD, _TAIL = 100, 300


class History:
    """The rows of a run that alarms look at: the first 100 steps and the last 300.

    Of metrics that are there at some steps only, as those of validation, the first 100 rows that have them stay, too.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Makes one of the rows of consecutive steps."""
        self._head: list[dict[str, float]] = []
        self._kept: Counter[str] = Counter()
        self._tail: deque[dict[str, float]] = deque(maxlen=_TAIL)
        self.names: set[str] = set()
        """All metrics that there have been."""
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        """Returns how many rows there are."""
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
        """Puts a row to the first ones, when there are fewer than 100 of them with one of its metrics."""
        if any(self._kept[name] < _HEAD for name in row):
            self._kept.update(row.keys())
            self._head.append(dict(row))

    def matching(self, pattern: str) -> list[str]:
        """Returns the names of metrics that match a pattern such as `episode/stop/*`."""
        return sorted(fnmatch.filter(self.names, pattern))

    def first(self, quantity: Quantity, count: int) -> list[float]:
        """Returns the first finite values, at most so many, in order."""
        return _values(quantity, chain(self._head, self._tail), count)

    def last(self, quantity: Quantity, count: int) -> list[float]:
        """Returns the last finite values, at most so many, in order."""
        return _values(quantity, chain(reversed(self._tail), reversed(self._head)), count)[::-1]

    def level(self, quantity: Quantity, window: int) -> float | None:
        """Returns the median of the last `window` values; None while there are fewer."""
        values = self.last(quantity, window)
        return statistics.median(values) if len(values) == window else None

    def start(self, quantity: Quantity, window: int) -> float | None:
        """Returns the median of the first `window` values: the baseline. None while they are among the last ones."""
        values = self.first(quantity, 2 * window)
        return statistics.median(values[:window]) if len(values) == 2 * window else None

    def best(self, quantity: Quantity, window: int) -> float | None:
        """Returns the highest median of `window` consecutive values before the last `window`; None without one."""
        values = self.first(quantity, len(self))
        medians = (statistics.median(values[end - window : end]) for end in range(window, len(values) - window + 1))
        return max(medians, default=None)


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A condition with its name, what it reads, and its options; calling it looks at a history."""

    name: str
    what: str
    """What it sees, in a sentence."""
    reads: tuple[str, ...]
    """Metrics that it cannot do without: names or patterns, alternatives of one another divided by `|`; `{name}` stands
    for the option of that name."""
    also: tuple[str, ...]
    """Metrics that make it more certain, or say more."""
    look: Callable[..., Finding | None] = field(repr=False)
    patience: int
    """For how many steps with news the condition must hold before the alarm is raised, or not hold to end it."""

    def __call__(self, history: History, **options: Any) -> Finding | None:
        """Returns what holds at the newest step, or None; None, too, where metrics are missing."""
        if self.missing(history.names, **options):
            return None
        return self.look(history, **{name: value for name, value in options.items() if name != "patience"})

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Its options and what they are unless they are set."""
        parameters = inspect.signature(self.look).parameters.values()
        return {"patience": self.patience, **{p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}}

    def missing(self, names: Iterable[str], **options: Any) -> list[str]:
        """Returns what it would need that is not among the names of metrics."""
        names = list(names)
        return [need for need in self._needs(options) if not any(_matches(name, need) for name in names)]

    def has_news(self, row: Row, **options: Any) -> bool:
        """Tells whether a row has news for it."""
        return any(_matches(name, need) for need in self._needs(options) for name in row)

    def watches(self, name: str, **options: Any) -> bool:
        """Tells whether it reads a metric."""
        return any(_matches(name, need) for need in (*self._needs(options), *self.also))

    def _needs(self, options: Mapping[str, Any]) -> list[str]:
        return [need.format_map({**self.defaults, **options}) for need in self.reads]

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises when options are unknown or of the wrong type.

        Raises:
            ConfigError: naming those that it has.
        """
        if unknown := sorted(set(options) - set(self.defaults)):
            raise ConfigError(f"the alarm {self.name} has no options {unknown}; it has {sorted(self.defaults)}")
        for name, value in options.items():
            _check_value(value, self.defaults[name], what=f"option {name} of the alarm {self.name}")


def alarm(
    *, reads: Sequence[str], also: Sequence[str] = (), patience: int = 3
) -> Callable[[Callable[..., Finding | None]], Alarm]:
    """Returns the decorator of an alarm; the function takes the history and, by keyword, its options with defaults.

    Args:
        reads: see `Alarm.reads`.
        also: see `Alarm.also`.
        patience: see `Alarm.patience`.
    """

    def to_alarm(look: Callable[..., Finding | None]) -> Alarm:
        what = (inspect.getdoc(look) or "").split("\n", 1)[0]
        return Alarm(name=look.__name__, what=what, reads=tuple(reads), also=tuple(also), look=look, patience=patience)

    return to_alarm


_REGISTRY = Registry[Alarm](package="verl_agentic.diagnostics.alarms", what="alarm", kind=Alarm, decorator="alarm")
load_alarm, alarm_names = _REGISTRY.load, _REGISTRY.names


def first_of(*names: str) -> Quantity:
    """Returns the quantity of the first of these metrics that a row has."""
    return lambda row: next((row[name] for name in names if name in row), None)


def total(names: Sequence[str]) -> Quantity:
    """Returns the quantity that sums metrics up, as far as a row has them."""
    return lambda row: sum(found) if (found := [row[name] for name in names if name in row]) else None


def ratio(above: Quantity, below: Quantity) -> Quantity:
    """Returns the quantity of one over another; None where the latter is 0."""
    of_above, of_below = _reader(above), _reader(below)

    def read(row: Row) -> float | None:
        numerator, denominator = of_above(row), of_below(row)
        return None if numerator is None or not denominator else numerator / denominator

    return read


REWARD = ("episode/acc", "episode/score", "critic/score/mean")
"""How well the policy does, the raw outcome first."""


def gain(history: History, window: int) -> float | None:
    """Returns by how much the reward's median over the last `window` steps is above that over the first."""
    before, now = history.start(first_of(*REWARD), window), history.level(first_of(*REWARD), window)
    return None if before is None or now is None else now - before


def has_learnt(history: History, window: int) -> bool:
    """Tells whether the reward has risen; see `thresholds.has_risen`."""
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
