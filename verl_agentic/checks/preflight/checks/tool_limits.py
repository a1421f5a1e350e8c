"""Limits of verl's own tool loop: characters instead of tokens, and calls that it drops silently."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_TURNS = "actor_rollout_ref.rollout.multi_turn"
_LIMITS = "actor_rollout_ref.rollout.custom.agentic.limits"
_FEW_CHARACTERS = 1024
_CHARACTERS_PER_TOKEN = 4
_TOKEN_KEYS = ("data.max_response_length", "data.max_prompt_length")


def tool_limits(run: PlannedRun) -> list[Finding]:
    """Returns limits that have another effect than they seem to."""
    if run.is_ours:
        return _check_ignored_limits(run)
    if "tool_agent" not in run.agent_loops or not run.tools:
        return []
    return [*_check_length(run), *_check_calls(run), *_check_turns(run)] or [ok("the limits of tools are plausible")]


def _check_ignored_limits(run: PlannedRun) -> list[Finding]:
    """Returns limits of verl that env_agent ignores."""
    instead = {"max_tool_response_length": "max_observation_tokens", "max_parallel_calls": "max_calls_per_turn"}
    return [
        fail(
            f"{_TURNS}.{key}={run.get(f'{_TURNS}.{key}')} has no effect: env_agent has its own limit"
            + (", in tokens" if "tokens" in ours else ""),
            f"set {_LIMITS}.{ours}",
        )
        for key, ours in instead.items()
        if run.get(f"{_TURNS}.{key}") != run.default(f"{_TURNS}.{key}")
    ]


def _check_length(run: PlannedRun) -> list[Finding]:
    key = f"{_TURNS}.max_tool_response_length"
    limit = run.number(key, 256)
    tokens = int(limit / _CHARACTERS_PER_TOKEN)
    if limit < _FEW_CHARACTERS or limit in {run.get(name) for name in _TOKEN_KEYS}:
        return [
            fail(
                f"{key}={limit} counts characters, not tokens: answers of tools are cut to about {tokens} tokens",
                f"set it to about {_CHARACTERS_PER_TOKEN} times the tokens that you mean",
            )
        ]
    return []


def _check_calls(run: PlannedRun) -> list[Finding]:
    key = f"{_TURNS}.max_parallel_calls"
    limit = run.number(key, 1)
    if limit < 1:
        return [fail(f"{key}={limit}: no call is ever executed", "set it to at least 1")]
    if limit == 1:
        return [
            warn(
                f"{key}=1: of several calls in a turn verl executes the first and drops the others silently",
                "raise it, unless the model makes only one call per turn",
            )
        ]
    return []


def _check_turns(run: PlannedRun) -> list[Finding]:
    turns = [run.get(f"{_TURNS}.{key}") for key in ("max_assistant_turns", "max_user_turns")]
    if turns[0] == 1:
        return [
            fail(
                f"{_TURNS}.max_assistant_turns=1: the loop ends with the first call, before the tool answers",
                "set it to at least 2",
            )
        ]
    if turns == [None, None]:
        return [warn("turns are limited by data.max_response_length alone", f"set {_TURNS}.max_assistant_turns")]
    return []
