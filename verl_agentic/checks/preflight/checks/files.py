"""Model, data, and the files and folders that the configuration names."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun


def files(run: PlannedRun) -> list[Finding]:
    """Returns missing and unreadable files, unwritable folders, and broken checkpoints."""
    findings = [fail(message, "fix the path") for message in run.problems.get("files", ())]
    findings += [fail(message, "") for message in run.problems.get("folders", ())]
    findings += [
        not_tested(f"{path} is not on this machine", "run preflight where it can be read")
        for path in run.problems.get("remote", ())
    ]
    findings += [
        fail(message, "name a folder with config, tokenizer and weights") for message in run.problems.get("model", ())
    ]
    return findings or [ok("model, data and all named files exist, and folders can be written to")]
