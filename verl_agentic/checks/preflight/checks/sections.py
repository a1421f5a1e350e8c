"""The sections of this package."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun


def sections(run: PlannedRun) -> list[Finding]:
    """Returns faults that their readers find: unknown keys, wrong types, values out of range, conflicts."""
    refused = run.problems.get("sections", ())
    return [fail(message, "correct the section") for message in refused] or [
        ok("every section of verl_agentic can be read")
    ]
