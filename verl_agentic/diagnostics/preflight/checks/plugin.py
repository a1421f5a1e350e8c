"""What this package itself refuses before Ray starts."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, fail, ok


def plugin(run: PlannedRun) -> list[Finding]:
    """Returns what the plugin's own guard says: missing adapters, platform, critic, options of estimators."""
    refused = run.problems.get("plugin", ())
    chosen = f" and chooses {', '.join(run.chosen)}" if run.chosen else ""
    return [fail(message, "") for message in refused] or [ok(f"the plugin takes this configuration{chosen}")]
