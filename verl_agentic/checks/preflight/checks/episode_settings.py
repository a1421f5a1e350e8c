"""The section of `env_agent`, which every episode reads."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.episode_section import SECTION, loop_settings
from verl_agentic.checks.preflight.planned_run import PlannedRun


def episode_settings(run: PlannedRun) -> list[Finding]:
    """Returns invalid settings, and budgets that contradict each other."""
    if "env_agent" not in run.agent_loops:
        section = run.get(SECTION, {})
        return [
            warn(f"{SECTION} is set, but no row uses env_agent", "set agent.default_agent_loop=env_agent")
        ] if set(section) - {"required", "log", "audit", "health", "waiting"} else []  # fmt: skip
    try:
        settings = loop_settings(run)
    except ConfigError:
        return []  # reported by `sections`
    limits = settings.limits
    advice = f"set {SECTION}.limits.score_timeout_s, turn_timeout_s or episode_timeout_s"
    findings = [
        fail(message, advice) if not message.startswith("tool ") else warn(message, "set timeout_s of the tool")
        for message in run.problems.get("deadlines", ())
    ]
    if limits.episode_timeout_s < limits.turn_timeout_s:
        findings.append(
            warn(
                f"an episode ends after {limits.episode_timeout_s:g} s and a turn after {limits.turn_timeout_s:g} s",
                f"lower {SECTION}.limits.turn_timeout_s, so that one stuck turn does not cost the episode",
            )
        )
    if limits.max_observation_tokens is not None and limits.max_observation_tokens >= limits.max_response_tokens:
        findings.append(
            warn(
                f"one observation may have {limits.max_observation_tokens} tokens, as many as the whole response",
                f"lower {SECTION}.limits.max_observation_tokens",
            )
        )
    if run.num_partial_solutions == 0:
        findings.append(
            fail(
                f"{SECTION}.exploration.partial_solution has no effect: no row has extra_info.partial_solution",
                "write it into the rows, or unset the option",
            )
        )
    return findings or [
        ok(f"at most {limits.max_turns} turns, {limits.max_response_tokens} tokens, {limits.episode_timeout_s:g} s")
    ]
