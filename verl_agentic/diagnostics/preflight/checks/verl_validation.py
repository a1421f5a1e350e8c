"""What verl itself refuses before Ray starts, and the objects that its workers make of the configuration."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned import PlannedRun
from verl_agentic.diagnostics.preflight.result import Verdict, fail, ok


def verl_validation(run: PlannedRun) -> list[Verdict]:
    """Returns verl's own words."""
    refused = run.problems.get("verl", ())
    return [fail(message, "verl refuses this; mend the values it names") for message in refused] or [
        ok("verl's own validation passes")
    ]
