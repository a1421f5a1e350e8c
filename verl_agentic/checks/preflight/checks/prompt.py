"""The prompt of the first row, as its agent loop renders it."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun


def prompt(run: PlannedRun) -> list[Finding]:
    """Returns whether it can be rendered, and fits."""
    failed = run.problems.get("prompt", ())
    if failed:
        return [fail(f"the first row cannot be started: {message}", "") for message in failed]
    if run.prompt is None:
        return [not_tested("the first prompt, its tools and its reward: no row was started", "see the other findings")]
    limit = run.number("actor_rollout_ref.rollout.prompt_length", run.number("data.max_prompt_length", 0))
    length = run.prompt.num_tokens
    if length > limit:
        return [
            fail(
                f"the prompt has {length} tokens, got data.max_prompt_length={limit}: {_describe_effect(run)}",
                f"set data.max_prompt_length to at least {length}, or data.filter_overlong_prompts=true",
            )
        ]
    if length > 0.9 * limit and not run.get("data.filter_overlong_prompts"):
        return [
            warn(
                f"the prompt has {length} of data.max_prompt_length={limit} tokens: others may be longer",
                "raise it, or set data.filter_overlong_prompts=true",
            )
        ]
    return [ok(f"{length} tokens of data.max_prompt_length={limit}")]


def _describe_effect(run: PlannedRun) -> str:
    if run.is_ours:
        return "it reduces the space for the response"
    return "verl cuts off its beginning, with the tools and the task"
