"""Checks of a run: what alarms, which read metrics, and record checks, which read a run's folder, have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from verl_agentic.base.finding import Finding
from verl_agentic.base.registry import Registry

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

Judgement = Literal["ok", "warn", "fail"]
ORDER: tuple[Judgement, ...] = ("ok", "warn", "fail")
"""Statuses from good to bad."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit of a metric. If `fail` is below `warn`, small values are bad."""

    warn: float
    """Default of the alarm's option: from here on, the alarm is raised and a diagnosis warns."""
    fail: float
    """From here on, a diagnosis fails."""

    def judge(self, value: float, *, warn: float | None = None) -> Judgement:
        """Returns the status of a value; a value at a limit has reached it.

        Args:
            value: of the metric.
            warn: the user's limit; None: the default.
        """
        sign = -1.0 if self.fail < self.warn else 1.0
        if sign * value < sign * (self.warn if warn is None else warn):
            return "ok"
        return "fail" if sign * value >= sign * self.fail else "warn"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A function that judges the folder of a run, and its name."""

    name: str
    judge: Callable[..., Finding | None] = field(repr=False)

    def diagnose(self, run: RunEvidence, **options: Any) -> Finding:
        """Returns the finding on a finished or running run."""
        finding = self.judge(run, **options)
        assert finding is not None
        return finding


def record_check(judge: Callable[[RunEvidence], Finding]) -> Check:
    """Makes a check of a function of a run's folder: its trajectories, metrics and other files."""
    return Check(name=judge.__name__, judge=judge)


_REGISTRY = Registry[Check](
    package="verl_agentic.observe.checks", what="check", kind=Check, decorator="alarm or @record_check"
)
load_check, check_names = _REGISTRY.load, _REGISTRY.names
