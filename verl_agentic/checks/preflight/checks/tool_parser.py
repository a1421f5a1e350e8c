"""Compatibility of tool parser and chat template."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok
from verl_agentic.checks.preflight.episode_section import SECTION
from verl_agentic.checks.preflight.planned_run import PlannedRun

_FORMAT = "actor_rollout_ref.rollout.multi_turn.format"


def tool_parser(run: PlannedRun) -> list[Finding]:
    """Returns whether the parser can parse a call of the chat template."""
    registered_parsers, name = run.registered.get("tool_parser", frozenset()), run.get(_FORMAT)
    if registered_parsers and name not in registered_parsers:
        return [fail(f"{_FORMAT} is not a parser of verl, got {name!r}", f"use one of {sorted(registered_parsers)}")]
    if run.call is None:
        return _find_untested(run)
    if run.call.fits:
        return [ok(f"{run.call.parser} reads the calls that the chat template writes")]
    reading = f"it read {run.call.read}" if run.call.read else "it found no call"
    return [
        fail(
            f"{_FORMAT}={run.call.parser} cannot parse the calls of the chat template: {reading} in "
            f"{run.call.written.strip()!r}",
            f"set {_FORMAT} to the parser of the model's family: one of {sorted(registered_parsers)}",
        )
    ]


def _find_untested(run: PlannedRun) -> list[Finding]:
    is_read = run.prompt is not None and run.prompt.tools and not run.prompt.hidden_tools
    if not is_read or run.get(f"{SECTION}.protocol", "chat") != "chat":
        return []
    return [not_tested("calls of tools: the chat template writes none, or the agent loop reads none", "try a dry run")]
