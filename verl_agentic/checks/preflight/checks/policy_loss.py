"""Requirements of the policy loss."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.credit.policy_loss import is_policy_loss, load_policy_loss

_ACTOR = "actor_rollout_ref.actor"
_MODE = f"{_ACTOR}.policy_loss.loss_mode"
_NORM = "seq-mean-token-sum-norm"
SPLIT_LOSSES = {
    "clip_cov": "draws the tokens that it clips from each micro-batch",
    "geo_mean": "is a mean over the rows of each micro-batch, and the means are added",
    "kl_cov": "takes the largest covariances of each micro-batch",
}
"""verl's losses whose gradient depends on the split into micro-batches -> the reason (verl 0.9.1, core_algos.py)."""


def policy_loss(run: PlannedRun) -> list[Finding]:
    """Returns an unknown loss, and what depends on micro-batches. The feature of losses checks their requirements."""
    return [*_check_named_loss(run), *loss_per_micro_batch(run)]


def loss_per_micro_batch(run: PlannedRun) -> list[Finding]:
    """Returns settings with which the gradient depends on how verl splits a mini-batch into micro-batches."""
    findings = []
    if reason := SPLIT_LOSSES.get(name := str(run.get(_MODE))):
        findings.append(
            warn(
                f"the gradient depends on the size of micro-batches: verl's loss {name} {reason}",
                f"set {_ACTOR}.use_dynamic_bsz=false and the largest {_ACTOR}.ppo_micro_batch_size_per_gpu that fits, "
                "or use another loss",
            )
        )
    for section in (_ACTOR, *(["critic"] if run.get("critic.enable") else [])):
        is_divided = run.get(f"{section}.loss_agg_mode") == _NORM
        if is_divided and run.get(f"{section}.loss_scale_factor") is None:
            findings.append(
                warn(
                    f"{section}.loss_agg_mode={_NORM} divides by the longest row of each micro-batch, got "
                    f"{section}.loss_scale_factor=null: the gradient depends on the split, and a long row weakens the "
                    "others",
                    f"set {section}.loss_scale_factor='${{data.max_response_length}}'",
                )
            )
    return findings


def _check_named_loss(run: PlannedRun) -> list[Finding]:
    name, losses = str(run.get(_MODE, "vanilla")), run.registered.get("policy_loss", frozenset())
    if losses and name not in losses and not is_policy_loss(name):
        return [
            fail(
                f"{_MODE} is unknown, got {name!r}: the first update ends the run",
                f"use one of {sorted(losses)}, package.module:function or path/file.py:function, or name the "
                "module that registers yours in model.external_lib",
            )
        ]
    if is_policy_loss(name):
        try:
            load_policy_loss(name)
        except ConfigError as refused:
            return [fail(str(refused), f"fix {_MODE}")]
    return [ok(name)]
