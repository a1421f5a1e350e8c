"""The sections of this package."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, fail, ok


def sections(run: PlannedRun) -> list[Finding]:
    """Returns faults that their readers find: unknown keys, wrong types, values out of range, conflicts."""
    refused = run.problems.get("sections", ())
    return [fail(message, "correct the section") for message in refused] or [
        ok("every section of verl_agentic can be read")
    ]
