"""Alarm: mean success rises, best-of-n success falls."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_MEAN, _BEST = "val-*/mean@*", "val-*/best@*/mean"


@alarm(reads=(_MEAN, _BEST), patience=2)
def boundary_collapse(history: History, *, margin: float = 0.02, window: int = 1) -> Finding | None:
    """In validation, single attempts have improved, but the best of several attempts is worse than before training.

    Needs trainer.val_before_train and actor_rollout_ref.rollout.val_kwargs.n above 1.

    Args:
        margin: minimum drop of the best of several attempts; use at least the standard error.
        window: validations whose median is compared, at either end.

    Paper: https://arxiv.org/abs/2508.00222 (RL-PLUS). Deviations: the paper names the effect; the test is ours.
    """
    for mean_metric in history.matching(_MEAN):
        prefix, count = mean_metric.rsplit("/mean@", 1)
        best_metric = f"{prefix}/best@{count}/mean"
        one_before, one_now = history.start(mean_metric, window), history.level(mean_metric, window)
        many_before, many_now = history.start(best_metric, window), history.level(best_metric, window)
        if one_before is None or one_now is None or many_before is None or many_now is None:
            continue
        if one_now > one_before and many_now < many_before - margin:
            return warn(
                found=f"the policy solves fewer tasks in several attempts: {mean_metric} rose from {one_before:.3g} to "
                f"{one_now:.3g}, but {best_metric} fell from {many_before:.3g} to {many_now:.3g} (margin {margin:g})",
                evidence={
                    "metric": prefix,
                    "one_before": one_before,
                    "one_now": one_now,
                    "best_before": many_before,
                    "best_now": many_now,
                },
                advice="keep more entropy (actor_rollout_ref.actor.clip_ratio_high=0.28), mix in episodes from outside "
                "the policy (agentic.external_sessions), or stop earlier",
                check=prefix,
            )
    return None
