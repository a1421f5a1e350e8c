"""Alarm: non-finite or exploding gradients."""

from __future__ import annotations

import math
import statistics

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_NORM = "actor/grad_norm"
_LOSSES = ("actor/pg_loss", "actor/loss", "actor/kl_loss", "batch/entropy", "critic/grad_norm", "critic/vf_loss")


@alarm(reads=(_NORM,), also=_LOSSES, patience=1)
def gradient(history: History, *, times: float = 10.0, window: int = 20, recent: int = 3) -> Finding | None:
    """The gradient or a loss is not finite, or the gradient's norm has exploded.

    Args:
        times: minimum ratio of the median norm of the last steps to that of the window before.
        window: steps before the last ones.
        recent: number of last steps; more than one, because single batches vary.
    """
    row = history.now
    bad = [name for name in (_NORM, *_LOSSES) if name in row and not math.isfinite(row[name])]
    if bad:
        return warn(
            found=f"{', '.join(bad)} must be finite, and is {row[bad[0]]}",
            evidence={name: str(row[name]) for name in bad},
            advice="resume from the last good checkpoint; look for rewards and log-probs that are not finite "
            "(verl-agentic diagnose), lower actor_rollout_ref.actor.optim.lr and "
            "actor_rollout_ref.actor.optim.clip_grad, compute log-probs in float32",
            check="non_finite",
        )
    norms = history.last(_NORM, window + recent)
    if len(norms) < window + recent:
        return None
    before, now = statistics.median(norms[:window]), statistics.median(norms[window:])
    if now < times * before or not before:
        return None
    return warn(
        found=f"the gradient's norm is {now:.3g}, {now / before:.0f} times that of the {window} steps before "
        f"({before:.3g}, limit {times:g} times)",
        evidence={"grad_norm_before": before, "grad_norm_now": now},
        advice="lower actor_rollout_ref.actor.optim.lr or actor_rollout_ref.actor.optim.clip_grad; look at the "
        "advantages (critic/advantages/max) and at the ratio of trainer to rollout (rollout_mismatch)",
        check="exploding",
    )
