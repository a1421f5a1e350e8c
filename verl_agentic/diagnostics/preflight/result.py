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


def judge(run: PlannedRun, own: Sequence[str] = ()) -> list[Finding]:
    """Returns the findings of all checks, and of the user's own, which are given by address.

    Raises:
        ConfigError: there is no function at an address.
    """
    return [replace(finding, check=name) for name in (*check_names(), *own) for finding in load_check(name)(run)]
