"""What a check says, and the run of all checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import FunctionType
from typing import Any, Literal

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.registry import Registry

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One thing that a check found."""

    status: Status
    found: str
    """What is so, with the values that make it so."""
    advice: str = ""
    """What to do about it."""


Check = Callable[[PlannedRun], list[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A verdict, with the name of its check."""

    check: str
    status: Status
    found: str
    advice: str

    def to_dict(self) -> dict[str, str]:
        """Returns it as plain JSON values."""
        return asdict(self)


def ok(found: str) -> Verdict:
    """Returns that something is as it should be."""
    return Verdict(status="ok", found=found)


def warn(found: str, advice: str) -> Verdict:
    """Returns what may be meant, and often is not."""
    return Verdict(status="warn", found=found, advice=advice)


def fail(found: str, advice: str) -> Verdict:
    """Returns what would end the run, spoil it, or be ignored by it."""
    return Verdict(status="fail", found=found, advice=advice)


_REGISTRY = Registry[Check](
    package="verl_agentic.diagnostics.preflight.checks", what="preflight check", kind=FunctionType
)
load_check, check_names = _REGISTRY.load, _REGISTRY.names


def judge(run: PlannedRun, names: Sequence[str] | None = None) -> list[Result]:
    """Returns what all checks, or those named, say of a run; a check that has nothing to look at says nothing."""
    results: list[Result] = []
    for name in check_names() if names is None else names:
        for verdict in load_check(name)(run):
            fields: dict[str, Any] = asdict(verdict)
            results.append(Result(check=name, **fields))
    return results
