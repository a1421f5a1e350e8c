"""Optimiser settings with which a run learns nothing."""

from __future__ import annotations

from collections.abc import Iterator

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.checks.preflight.run_sizes import has_critic

_ACTOR = "actor_rollout_ref.actor"
_TINY_LR, _HUGE_LR = 1e-9, 1e-2


def learning(run: PlannedRun) -> list[Finding]:
    """Returns learning rates, gradient limits and warm-ups that leave the weights as they are, or destroy them."""
    sections = [_ACTOR, "critic"] if has_critic(run) else [_ACTOR]
    findings = [finding for section in sections for finding in _check_optimiser(run, f"{section}.optim")]
    steps = run.total_steps
    if has_critic(run) and steps and run.number("trainer.critic_warmup") >= steps:
        warmup = run.number("trainer.critic_warmup")
        findings.append(
            fail(f"trainer.critic_warmup={warmup} of {steps} steps: the policy is never updated", "lower it")
        )
    if run.get("trainer.val_only"):
        findings.append(warn("trainer.val_only=true: the run ends after the first validation", "unset it to train"))
    return findings or [ok(f"learning rate {run.number(f'{_ACTOR}.optim.lr'):g}")]


def _check_optimiser(run: PlannedRun, section: str) -> Iterator[Finding]:
    rate, limit = run.number(f"{section}.lr", 1e-6), run.number(f"{section}.clip_grad", 1.0)
    if rate <= 0:
        yield fail(f"{section}.lr={rate:g}: no update changes a weight", "set it to about 1e-6")
    elif not _TINY_LR <= rate < _HUGE_LR:
        effect = "updates are lost in rounding" if rate < _TINY_LR else "the first updates may destroy the model"
        yield warn(f"{section}.lr={rate:g}: {effect}", "set it to about 1e-6, or 1e-4 for adapters and tiny models")
    if limit <= 0:
        yield fail(f"{section}.clip_grad={limit:g} scales every gradient to 0, or reverses it", "set it to about 1.0")
    steps, warmup = run.total_steps, run.number(f"{section}.lr_warmup_steps", -1)
    if warmup <= 0:
        warmup = (steps or 0) * run.number(f"{section}.lr_warmup_steps_ratio")
    begins_at_0 = run.get(f"{section}.lr_scheduler_type") != "cosine" or run.get(f"{section}.zero_indexed_step", True)
    if steps == 1 and int(warmup) >= 1 and begins_at_0 and run.parameter_sync_step == 1:
        yield fail(
            f"the run has one step, and {section}.lr rises from 0 in it: no weight changes",
            f"set {section}.lr_warmup_steps=0 and lr_warmup_steps_ratio=0, or train for more steps",
        )
    elif steps and warmup > 0 and warmup >= steps:
        yield warn(
            f"the learning rate rises for {warmup:g} of {steps} steps and never reaches {section}.lr={rate:g}",
            f"lower {section}.lr_warmup_steps or lr_warmup_steps_ratio",
        )
