"""verl's own validation, and the config classes of its workers."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun


def verl_validation(run: PlannedRun) -> list[Finding]:
    """Returns verl's own error messages."""
    findings = [fail(message, "verl refuses this; fix the values it names") for message in run.problems.get("verl", ())]
    findings += [
        not_tested(message, "run preflight on the machine of the run") for message in run.problems.get("unchecked", ())
    ]
    return findings or [ok("verl's own validation passes")]
