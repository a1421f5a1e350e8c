"""Model, data and the files that the configuration names."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, fail, ok


def files(run: PlannedRun) -> list[Finding]:
    """Returns missing and unreadable files."""
    found = [fail(message, "fix the path") for message in run.problems.get("files", ())]
    found += [
        fail(message, "name a folder with config, tokenizer and weights") for message in run.problems.get("model", ())
    ]
    return found or [ok("model, data and all named files exist")]
