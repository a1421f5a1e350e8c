"""The agent loop of every row."""

from __future__ import annotations

from collections.abc import Mapping

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_DEFAULT = "actor_rollout_ref.rollout.agent.default_agent_loop"


def agent_names(run: PlannedRun) -> list[Finding]:
    """Returns rows without an agent loop, or with another loop than intended."""
    findings: list[Finding] = []
    for split, rows in (("train", run.rows), ("val", run.val_rows)):
        if rows is not None:
            findings += _check_split(run, split, rows.agent_names)
    return findings or [ok(f"rows use {', '.join(sorted(run.agent_loops))}")]


def _check_split(run: PlannedRun, split: str, names: Mapping[str | None, int]) -> list[Finding]:
    loops, named = run.registered.get("agent_loop", frozenset()), dict(names)
    default = run.get(_DEFAULT)
    if not named:
        named = {default: 0}
        if default == "single_turn_agent" and run.tools:
            return [
                fail(
                    f"{split} rows have no column agent_name and {_DEFAULT} is single_turn_agent, which uses no tools, "
                    f"got the tools {sorted(run.tools)}",
                    f"set {_DEFAULT}=tool_agent, or write agent_name into the rows",
                )
            ]
    findings = []
    if None in named and len(named) > 1:
        findings.append(
            fail(
                f"{named[None]} {split} rows have no agent_name, but others have one",
                "name the loop in all rows, or in none: verl has no default for single rows",
            )
        )
    if loops and (unknown := sorted(name for name in named if name is not None and name not in loops)):
        findings.append(
            fail(
                f"{split} rows name agent loops that are not registered, got {unknown}",
                f"use one of {sorted(loops)}, or name yours in actor_rollout_ref.rollout.agent.agent_loop_config_path",
            )
        )
    others = sorted(name for name in named if name not in (None, default))
    if others and not findings and default in loops and named.get(default) is None and split == "train":
        findings.append(warn(f"{_DEFAULT}={default} is used by no row: they name {others}", "set it to the same loop"))
    return findings
