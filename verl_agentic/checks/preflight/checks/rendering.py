"""Messages after a turn of the policy, as the agent loop renders them."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun


def rendering(run: PlannedRun) -> list[Finding]:
    """Returns messages that cannot be rendered after a turn that the policy ends with its own token."""
    if run.prompt is None or run.prompt.refused_messages is None:
        return []
    return [
        fail(
            f"the model's conversation cannot continue after a turn with {refused}",
            "set actor_rollout_ref.model.custom_chat_template, use another model, or agentic.limits.max_turns=1",
        )
        for refused in run.prompt.refused_messages
    ] or [ok("messages of the user and results of two calls can follow a turn")]
