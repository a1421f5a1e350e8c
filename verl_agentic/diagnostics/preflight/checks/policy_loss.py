"""Requirements of the policy loss."""

from __future__ import annotations

from verl_agentic.algorithms.policy_loss import is_policy_loss, load_policy_loss
from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.errors import ConfigError
from verl_agentic.finding import Finding, fail, ok

_ACTOR = "actor_rollout_ref.actor"
_MODE = f"{_ACTOR}.policy_loss.loss_mode"


def policy_loss(run: PlannedRun) -> list[Finding]:
    """Returns an unknown loss, and columns that a loss of ours would not get."""
    name, known = str(run.get(_MODE, "vanilla")), run.registered.get("policy_loss", frozenset())
    if known and name not in known and not is_policy_loss(name):
        return [
            fail(
                f"{_MODE} is unknown, got {name!r}: the first update ends the run",
                f"use one of {sorted(known)}, package.module:function or path/file.py:function, or name the "
                "module that registers yours in model.external_lib",
            )
        ]
    if not is_policy_loss(name):
        return [ok(name)]
    try:
        needs = set(load_policy_loss(name).needs)
    except ConfigError as refused:
        return [fail(str(refused), f"fix {_MODE}")]
    found = []
    if "entropy_BT" in needs and not _has_entropy(run):
        found.append(fail(f"the loss {name} needs entropies", f"set {_ACTOR}.calculate_entropy=true"))
    if "is_external_B" in needs and not run.get("actor_rollout_ref.rollout.custom.agentic.external_sessions"):
        found.append(
            fail(
                f"the loss {name} learns from sessions of the environment's solution, but there are none",
                "set agentic.external_sessions",
            )
        )
    return found or [ok(name)]


def _has_entropy(run: PlannedRun) -> bool:
    return bool(run.get(f"{_ACTOR}.calculate_entropy") or run.number(f"{_ACTOR}.entropy_coeff"))
