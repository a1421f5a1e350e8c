"""Interpolations that cannot be resolved."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail
from verl_agentic.checks.preflight.planned_run import PlannedRun


def unresolved(run: PlannedRun) -> list[Finding]:
    """Returns the interpolations that cannot be resolved; verl resolves all of them before the first step."""
    return [
        fail(message, "fix the ${...}, or set its key to a value") for message in run.problems.get("unresolved", ())
    ]
