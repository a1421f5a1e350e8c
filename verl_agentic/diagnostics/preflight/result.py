"""The checks of a planned run, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding
from verl_agentic.registry import Registry

Check = Callable[[PlannedRun], list[Finding]]


_REGISTRY = Registry[Check](
    package="verl_agentic.diagnostics.preflight.checks", what="preflight check", kind=FunctionType
)
load_check, check_names = _REGISTRY.load, _REGISTRY.names


def judge(run: PlannedRun, names: Sequence[str] | None = None) -> list[Finding]:
    """Returns the findings of all checks, or of those named."""
    chosen = check_names() if names is None else names
    return [replace(finding, check=name) for name in chosen for finding in load_check(name)(run)]
