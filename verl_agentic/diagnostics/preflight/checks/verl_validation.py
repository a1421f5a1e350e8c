"""What verl itself refuses before Ray starts, and the objects that its workers make of the configuration."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, fail, ok, warn


def verl_validation(run: PlannedRun) -> list[Finding]:
    """Returns verl's own words."""
    found = [fail(message, "verl refuses this; fix the values it names") for message in run.problems.get("verl", ())]
    found += [
        warn(f"cannot be checked here: {message}", "run preflight where the run is to be")
        for message in run.problems.get("unchecked", ())
    ]
    return found or [ok("verl's own validation passes")]
