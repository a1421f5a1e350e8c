"""The sections of this package, read as the run reads them."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, fail, ok


def sections(run: PlannedRun) -> list[Finding]:
    """Returns what their readers refuse: unknown keys, values of a wrong type or out of range, what does not go
    together."""
    refused = run.problems.get("sections", ())
    return [fail(message, "the run would end with this; fix the section") for message in refused] or [
        ok("every section of verl_agentic can be read")
    ]
