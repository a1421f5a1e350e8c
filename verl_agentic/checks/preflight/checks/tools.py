"""Configured tools and tools in the prompt."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_TURNS = "actor_rollout_ref.rollout.multi_turn"


def tools(run: PlannedRun) -> list[Finding]:
    """Returns tools that the prompt does not show."""
    findings = [fail(f"the tools cannot be loaded: {message}", f"fix {_TURNS}.tool_config_path or function_tool_path")
             for message in run.problems.get("tools", ())]  # fmt: skip
    if findings or run.prompt is None:
        return findings
    has, hidden = set(run.prompt.tools), sorted(run.prompt.hidden_tools)
    lost = sorted(set(run.tools) - has)
    if lost and (problem := _check_lost_tools(run, lost, has)):
        findings.append(problem)
    if hidden:
        findings.append(
            fail(
                f"the prompt does not show the tools {hidden}: the chat template ignores them",
                "use a model whose template takes tools, set actor_rollout_ref.model.custom_chat_template, or a "
                "protocol of ours that needs no template (agentic.protocol)",
            )
        )
    if findings or not has:
        return findings or [ok("there are no tools")]
    differing = "".join(f"; {server} writes {text!r}" for server, text in run.prompt.served_tools.items())
    hint = f"{differing} (protocol_options.tools_as)" if differing else ""
    return [ok(f"the prompt shows {', '.join(sorted(has))}{hint}")]


def _check_lost_tools(run: PlannedRun, lost: list[str], has: set[str]) -> Finding | None:
    """Returns configured tools that the loop of the first row does not have."""
    loop = run.agent_loop
    if loop == "single_turn_agent" and run.rows is not None and not run.rows.agent_names:
        return None  # reported by agent_names
    if has and not run.is_ours:
        return warn(f"the first row does not get the tools {lost}", "extra_info.tool_selection may exclude them")
    instead = f"uses the environment's tools, {sorted(has)}" if loop == "env_agent" else "takes no tools"
    return fail(
        f"the tools {lost} are configured, but {loop} {instead}",
        f"unset {_TURNS}.tool_config_path and function_tool_path, or choose the loop tool_agent",
    )
