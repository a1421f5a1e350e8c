"""Alarms: checks of the history of a run's metrics, during a run and after it.

An alarm returns a `Finding`: `warn` or `fail` while its condition holds, else `ok` or None. None also means that there
are too few values. An alarm with several conditions names the one that holds in `check`.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding, unknown
from verl_agentic.base.registry import Registry
from verl_agentic.observe.diagnosis.check import Check
from verl_agentic.observe.diagnosis.history import MAX_FIRST, History, Row

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence


@dataclass(frozen=True, kw_only=True)
class Alarm(Check):
    """A check that reads metrics, with its options; a call checks a history."""

    what: str
    """Its condition, in a sentence."""
    reads: tuple[str, ...]
    """Metrics that it needs: names or patterns, with alternatives separated by `|`. `{name}` is the option of that
    name."""
    also: tuple[str, ...]
    """Optional metrics."""
    details: Callable[[RunEvidence], tuple[str, tuple[str, ...]]] | None
    """Reads what the records add to a finding of a diagnosis: words, and trajectories to look at."""
    patience: int
    """Number of steps with new metrics for which the condition must hold to raise the alarm, or not hold to end it."""

    def __call__(self, history: History, **options: Any) -> Finding | None:
        """Returns the finding at the newest step; None without one, or if metrics are missing."""
        if self.missing(history.names, **options):
            return None
        return self.judge(history, **{name: value for name, value in options.items() if name != "patience"})

    def diagnose(self, run: RunEvidence, **options: Any) -> Finding:
        """Returns the finding on the whole history of a run, with details of its records."""
        if missing := self.missing(run.history.names, **options):
            return unknown(f"not logged, nor in trajectories: {', '.join(missing)}")
        finding = self(run.history, **options)
        if finding is None:
            return unknown("there are too few steps to judge")
        if finding.status == "ok" or self.details is None:
            return finding
        words, keys = self.details(run)
        return replace(finding, found="; ".join(filter(None, [finding.found, words])), look_at=keys)

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Its options with their defaults."""
        parameters = inspect.signature(self.judge).parameters.values()
        return {"patience": self.patience, **{p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}}

    def missing(self, names: Iterable[str], **options: Any) -> list[str]:
        """Returns the metrics that it needs and that are not among the names."""
        names = list(names)
        return [need for need in self._list_needs(options) if not any(_matches_need(name, need) for name in names)]

    def has_news(self, row: Row, **options: Any) -> bool:
        """Returns whether a row has a metric that it needs."""
        return any(_matches_need(name, need) for need in self._list_needs(options) for name in row)

    def watches(self, name: str, **options: Any) -> bool:
        """Returns whether it reads a metric."""
        return any(_matches_need(name, need) for need in (*self._list_needs(options), *self.also))

    def _list_needs(self, options: Mapping[str, Any]) -> list[str]:
        return [need.format_map({**self.defaults, **options}) for need in self.reads]

    def check(self, options: Mapping[str, Any]) -> None:
        """Checks its options. Raises ConfigError if an option is unknown or of the wrong type."""
        if unknown := sorted(set(options) - set(self.defaults)):
            raise ConfigError(f"the alarm {self.name} has no options {unknown}; it has {sorted(self.defaults)}")
        for name, value in options.items():
            _check_value(value, self.defaults[name], option=f"option {name} of the alarm {self.name}")


def alarm(
    *,
    reads: Sequence[str],
    also: Sequence[str] = (),
    patience: int = 3,
    details: Callable[[RunEvidence], tuple[str, tuple[str, ...]]] | None = None,
) -> Callable[[Callable[..., Finding | None]], Alarm]:
    """Returns the decorator of an alarm: a function of the history, with keyword-only options.

    Args:
        reads: see `Alarm.reads`.
        also: see `Alarm.also`.
        patience: see `Alarm.patience`.
        details: see `Alarm.details`.
    """

    def to_alarm(judge: Callable[..., Finding | None]) -> Alarm:
        condition = (inspect.getdoc(judge) or "").split("\n", 1)[0]
        return Alarm(
            **{"name": judge.__name__, "what": condition, "reads": tuple(reads), "also": tuple(also)},
            **{"judge": judge, "details": details, "patience": patience},
        )

    return to_alarm


_REGISTRY = Registry[Alarm](package="verl_agentic.observe.checks", what="alarm", kind=Alarm, decorator="alarm")
load_alarm = _REGISTRY.load


@functools.lru_cache(maxsize=100_000)
def _matches_need(name: str, need: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern.strip()) for pattern in need.split("|"))


def _check_value(value: Any, default: Any, *, option: str) -> None:
    if isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_FIRST // 2:
            raise ConfigError(f"{option} must be a whole number from 1 to {MAX_FIRST // 2}, got {value!r}")
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{option} must be a finite number, got {value!r}")
    elif not isinstance(value, str):
        raise ConfigError(f"{option} must be text, got {value!r}")
