"""Every metric of a batch, as a function of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verl_agentic.credit.batch_metrics.batch_health import batch_health
from verl_agentic.credit.batch_metrics.diversity import diversity
from verl_agentic.credit.batch_metrics.token_means import token_means
from verl_agentic.credit.credit.explained_variance import token_critic_metrics
from verl_agentic.credit.credit.group_health import group_health
from verl_agentic.methods.losses.implicit_reward import implicit_health

METRICS: dict[str, Callable[[Any], Mapping[str, float]]] = {
    "batch_health": lambda batch: batch_health(batch, raw_rewards_BT=batch.rewards_BT),
    "group_health": group_health,
    "diversity": diversity,
    "token_critic_metrics": lambda batch: token_critic_metrics(batch, batch.values_BT * 0.5),
    "implicit_health": lambda batch: implicit_health(batch, batch.values_BT),
    "token_means": lambda batch: token_means(
        batch.mask_BT,
        entropy_BT=batch.values_BT,
        log_prob_BT=batch.old_log_probs_BT,
        ref_log_prob_BT=batch.rollout_log_probs_BT,
    ),
}
