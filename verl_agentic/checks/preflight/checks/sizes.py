"""Sizes and counts that must be at least 1."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.checks.preflight.run_sizes import sizes_below_1


def sizes(run: PlannedRun) -> list[Finding]:
    """Returns sizes and counts below 1: no batch, no sample, no step or no GPU."""
    return [
        fail(f"{path} must be at least 1, got {value:g}", "set a size, or leave it as verl has it")
        for path, value in sizes_below_1(run).items()
    ] or [ok("every size and count is at least 1")]
