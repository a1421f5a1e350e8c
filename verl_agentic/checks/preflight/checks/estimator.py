"""Requirements of the advantage estimator."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun


def estimator(run: PlannedRun) -> list[Finding]:
    """Returns the missing requirements of an estimator."""
    name, n = run.get("algorithm.adv_estimator"), run.number("actor_rollout_ref.rollout.n", 1)
    findings = []
    if problem := _check_name(run, str(name)):
        findings.append(problem)
    if n < 2 and _compares_siblings(run, str(name)) and not _is_distilled(run):
        findings.append(
            fail(
                f"algorithm.adv_estimator={name} compares the samples of a prompt, got rollout.n={n}",
                "set actor_rollout_ref.rollout.n to 4 or more, or an estimator without groups",
            )
        )
    return findings or [ok(f"{name}, {n} samples a prompt")]


def _check_name(run: PlannedRun, name: str) -> Finding | None:
    # It imports torch.
    from verl_agentic.credit.advantage import advantage_names, is_advantage, load_advantage

    registered_estimators = run.registered.get("estimator", frozenset())
    if not is_advantage(name):
        if registered_estimators and name not in registered_estimators:
            return fail(
                f"algorithm.adv_estimator is unknown, got {name!r}",
                f"use one of {sorted(registered_estimators | set(advantage_names()))}, package.module:function or "
                "path/file.py:function",
            )
        return None
    try:
        load_advantage(name)
    except ConfigError as refused:
        return None if run.problems.get("plugin") else fail(str(refused), "fix the name")
    return None


def _compares_siblings(run: PlannedRun, name: str) -> bool:
    from verl_agentic.credit.advantage import is_advantage, load_advantage

    if not is_advantage(name):
        return name in run.registered.get("group_estimator", frozenset())
    try:
        return load_advantage(name).compares(run.get("algorithm.credit.options", {}) or {})
    except (ConfigError, AttributeError):  # unknown estimator or options: reported by another check
        return False


def _is_distilled(run: PlannedRun) -> bool:
    """Returns whether a teacher alone trains, without rewards."""
    loss = "distillation.distillation_loss.use_task_rewards"
    return bool(run.get("distillation.enabled")) and run.get(loss, True) is False
