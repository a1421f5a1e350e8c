"""Interpolations that cannot be resolved."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, fail


def unresolved(run: PlannedRun) -> list[Finding]:
    """Returns the interpolations that cannot be resolved; verl resolves all of them before the first step."""
    return [
        fail(message, "fix the ${...}, or set its key to a value") for message in run.problems.get("unresolved", ())
    ]
