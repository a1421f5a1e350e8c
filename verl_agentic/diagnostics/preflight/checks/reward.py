"""Scores of right answers within the budgets of the run."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import GoldTrial, PlannedRun
from verl_agentic.errors import AgenticError
from verl_agentic.finding import Finding, fail, ok, warn
from verl_agentic.rewards.rubric import Rubric

_FULL = 1 - 1e-6


def reward(run: PlannedRun) -> list[Finding]:
    """Returns rewards that cannot be computed, and right answers without the full reward."""
    found = [fail(message, "fix the section reward") for message in run.problems.get("reward", ())]
    if run.get("reward.reward_manager.name") == "rubric":
        found += _of_rubric(run)
    manager, known = run.get("reward.reward_manager.name"), run.registered.get("reward_manager", frozenset())
    if known and run.get("reward.reward_manager.source") == "register" and manager not in known:
        found.append(fail(f"reward.reward_manager.name={manager} is not registered", f"use one of {sorted(known)}"))
    if found:
        return found
    return [_of_trial(trial) for trial in run.gold] or [ok("the reward was not tested: there are no solutions")]


def _of_rubric(run: PlannedRun) -> list[Finding]:
    try:
        rubric = Rubric.from_config(run.get("reward", {}))
    except AgenticError:
        return []  # reported by `sections`
    others = sorted(loop for loop in run.agent_loops if loop != "env_agent")
    if others and all(term.use == "env" for term in rubric.outcomes):
        return [
            fail(
                f"the rubric's only outcome is that of an environment, got rows that use {others}",
                "set actor_rollout_ref.rollout.agent.default_agent_loop=env_agent, or add a component",
            )
        ]
    return []


def _of_trial(trial: GoldTrial) -> Finding:
    row = f"row {trial.row}"
    if trial.outcome is None:
        return warn(
            f"{row}: the right answer could not be tested: {trial.why}", "run preflight on the machine of the run"
        )
    low = {name: share for name, share in trial.parts.items() if share < _FULL}
    if trial.outcome < _FULL or low:
        parts = "".join(f", {name} gives {share:.2g}" for name, share in low.items())
        return fail(
            f"{row}: the right answer gets an outcome of {trial.outcome:.3g}, not 1 ({trial.why}{parts})",
            "fix the reward or the ground truth, or give the episode the turns and tokens that the solution needs",
        )
    return ok(f"{row}: the right answer gets the full outcome ({trial.why})")
