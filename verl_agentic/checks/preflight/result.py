"""The checks of a planned run, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import TypeVar

from verl_agentic.base.errors import describe_error
from verl_agentic.base.finding import Finding, fail
from verl_agentic.base.registry import Registry
from verl_agentic.checks.preflight.planned_run import PlannedRun

T = TypeVar("T")
Check = Callable[[PlannedRun], list[Finding]]


_REGISTRY = Registry[Check](package="verl_agentic.checks.preflight.checks", what="preflight check", kind=FunctionType)
_ADVICE = "a value has a form that this check does not expect: correct it; the other findings may name it"
load_check, check_names = _REGISTRY.load, _REGISTRY.names
_OF_SUPERVISED = (
    *("files", "loggers", "machine", "missing_values", "plugin", "sections", "unknown_keys", "unresolved"),
    *("value_types", "verl_validation"),
)
"""The checks that do not read an agent, a rollout or an advantage."""


def judge(run: PlannedRun, addresses: Sequence[str] = ()) -> list[Finding]:
    """Returns the findings of all checks, and of the user's own, which are given by address.

    A check that raises becomes a finding.

    Raises:
        ConfigError: there is no function at an address.
    """
    names = _OF_SUPERVISED if run.is_supervised else check_names()
    checks = {name: load_check(name) for name in (*names, *addresses)}
    all_findings = []
    for name, check in checks.items():
        findings, failures = guarded(name, check, run)
        all_findings += [replace(finding, check=name) for finding in findings] + failures
    return all_findings


def guarded(name: str, look: Callable[[PlannedRun], list[T]], run: PlannedRun) -> tuple[list[T], list[Finding]]:
    """Returns what a function returns for a run, and a failure if it raises."""
    try:
        return look(run), []
    except Exception as error:  # a value that no check expects, or code of the user
        return [], [replace(fail(f"cannot be judged, got {describe_error(error)}", _ADVICE), check=name)]
