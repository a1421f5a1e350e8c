"""Whether the advantage estimator can work with what this run gives it."""

from __future__ import annotations

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.errors import ConfigError
from verl_agentic.finding import Finding, fail, ok

_OF_OUR_TRAINERS = {"gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}
"""Estimators of verl's that its own V1 trainers do not give what they need; `adapters.trainer.trainers` does."""
_ALWAYS_THERE = {"values_BT", "old_log_probs_BT", "rollout_log_probs_BT"}


def estimator(run: PlannedRun) -> list[Finding]:
    """Returns what an estimator lacks."""
    name, n = run.get("algorithm.adv_estimator"), run.number("actor_rollout_ref.rollout.n", 1)
    found = []
    if name in _OF_OUR_TRAINERS and not str(run.get("trainer.v1.trainer_mode")).startswith("agentic_"):
        found.append(
            fail(
                f"algorithm.adv_estimator={name} fails in the first step of verl's own V1 trainers",
                "set trainer.v1.trainer_mode=agentic_sync (agentic_colocate_async, agentic_separate_async)",
            )
        )
    elif problem := _of_ours(run, str(name)):
        found.append(problem)
    if n < 2 and _compares(run, str(name)) and not _is_distilled(run):
        found.append(
            fail(
                f"algorithm.adv_estimator={name} compares the samples of a prompt, got rollout.n={n}: there is no "
                "other to compare with",
                "set actor_rollout_ref.rollout.n to 4 or more, or an estimator without groups",
            )
        )
    return found or [ok(f"{name}, {n} samples a prompt")]


def _of_ours(run: PlannedRun, name: str) -> Finding | None:
    # It imports torch.
    from verl_agentic.algorithms.advantage import advantage_names, is_advantage, load_advantage

    known = run.registered.get("estimator", frozenset())
    if not is_advantage(name):
        if known and name not in known:
            return fail(
                f"algorithm.adv_estimator is not known, got {name!r}",
                f"use one of {sorted(known | set(advantage_names()))}, package.module:function or "
                "path/file.py:function",
            )
        return None
    try:
        needs = set(load_advantage(name).needs) - _ALWAYS_THERE
    except ConfigError as refused:
        return None if run.problems.get("plugin") else fail(str(refused), "mend the name")
    if needs and not str(run.get("trainer.v1.trainer_mode")).startswith("agentic_"):
        return fail(
            f"algorithm.adv_estimator={name} needs {sorted(needs)}, which verl's own trainer does not hand over",
            "set trainer.v1.trainer_mode to agentic_sync, agentic_colocate_async or agentic_separate_async",
        )
    return None


def _compares(run: PlannedRun, name: str) -> bool:
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage

    if not is_advantage(name):
        return name in run.registered.get("group_estimator", frozenset())
    try:
        return load_advantage(name).compares(run.get("algorithm.credit.options", {}) or {})
    except (ConfigError, AttributeError):  # no such estimator, or options that are none: told elsewhere
        return False


def _is_distilled(run: PlannedRun) -> bool:
    """Returns whether a teacher alone trains: rewards, and what compares them, have no part in it."""
    loss = "distillation.distillation_loss.use_task_rewards"
    return bool(run.get("distillation.enabled")) and run.get(loss, True) is False
