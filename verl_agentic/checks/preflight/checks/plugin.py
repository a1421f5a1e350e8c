"""Faults that the plugin's guard finds before Ray starts."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun


def plugin(run: PlannedRun) -> list[Finding]:
    """Returns the faults that the guard finds: missing adapters, platform, critic, options of estimators."""
    refused = run.problems.get("plugin", ())
    chosen = f" and chooses {', '.join(run.chosen)}" if run.chosen else ""
    return [fail(message, "") for message in refused] or [ok(f"the plugin accepts this configuration{chosen}")]
