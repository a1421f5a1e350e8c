"""Scores of right answers within the budgets of the run."""

from __future__ import annotations

from verl_agentic.base.errors import AgenticError
from verl_agentic.base.finding import Finding, fail, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import FunctionTrial, GoldTrial, PlannedRun
from verl_agentic.rewards.rubric import Rubric

_FULL = 1 - 1e-6


def reward(run: PlannedRun) -> list[Finding]:
    """Returns rewards that cannot be computed, and right answers without the full reward."""
    findings = [fail(message, "fix the section reward") for message in run.problems.get("reward", ())]
    if run.get("reward.reward_manager.name") == "rubric":
        findings += _check_rubric(run)
    manager, registered_managers = (
        run.get("reward.reward_manager.name"),
        run.registered.get("reward_manager", frozenset()),
    )
    if (
        registered_managers
        and run.get("reward.reward_manager.source") == "register"
        and manager not in registered_managers
    ):
        findings.append(
            fail(f"reward.reward_manager.name={manager} is not registered", f"use one of {sorted(registered_managers)}")
        )
    if findings:
        return findings
    findings = [_judge_gold_trial(trial) for trial in run.gold] + (
        [] if run.function is None else [_judge_function(run.function)]
    )
    return findings or [
        not_tested("no reward was computed", "give the environment a solution (gold), or the rows a ground truth")
    ]


def _check_rubric(run: PlannedRun) -> list[Finding]:
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


def _judge_function(trial: FunctionTrial) -> Finding:
    if trial.fault:
        return fail(f"the reward function {trial.name}: {trial.fault}", "correct it: the first reward ends the run")
    if trial.untested:
        return not_tested(f"the reward function {trial.name}: {trial.untested}", "run preflight where it can be called")
    empty, *right = trial.scores.values()
    if not right:
        return not_tested(
            f"the reward function {trial.name} gives {empty:g} for an empty answer; no right answer is known",
            "test it with right and wrong answers",
        )
    scores = f"{empty:g} for an empty answer and {min(right):g} to {max(right):g} for right ones in {len(right)} forms"
    if max(right) <= empty:
        return warn(
            f"the reward function {trial.name} gives {scores}: right answers get no more",
            "check the form of answers that it reads, and that it compares them with ground_truth",
        )
    return ok(f"the reward function {trial.name} gives {scores}")


def _judge_gold_trial(trial: GoldTrial) -> Finding:
    row = f"row {trial.row}"
    if trial.outcome is None and trial.is_fault:
        return fail(f"{row}: its episode gets no score: {trial.why}", "correct the environment, the reward or the row")
    if trial.outcome is None:
        return not_tested(
            f"{row}: the reward of a right answer: {trial.why}", "run preflight on the machine of the run"
        )
    low = {name: share for name, share in trial.parts.items() if share < _FULL}
    if trial.outcome < _FULL or low:
        parts = "".join(f", {name} gives {share:.2g}" for name, share in low.items())
        return fail(
            f"{row}: the right answer gets an outcome of {trial.outcome:.3g}, not 1 ({trial.why}{parts})",
            "fix the reward or the ground truth, or give the episode the turns and tokens that the solution needs",
        )
    if trial.outcome > 2 - _FULL:
        return warn(f"{row}: the right answer gets an outcome of {trial.outcome:g}", "scale outcomes to 0 to 1")
    return ok(f"{row}: the right answer gets the full outcome ({trial.why})")
