"""The clipped surrogate of PPO, per token, with the mask inside the ratio: B rows, T response tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import masked, token_mean
from verl_agentic.credit.policy_loss import LossBatch

METRICS = (
    Metric(
        name="actor/pg_clipfrac*",
        unit="share",
        per="token (sequence_ppo: row), mean of micro-batches",
        rows="sampled tokens",
    ),
    Metric(name="actor/ppo_kl", unit="nats", per="token, mean of micro-batches", rows="sampled tokens"),
    Metric(name="actor/approx_kl", unit="nats", per="token, mean of micro-batches", rows="sampled tokens"),
    Metric(name="actor/ratio_mean", unit="ratio", per="token, mean of micro-batches", rows="sampled tokens"),
)

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this, as in verl: exp(88) is infinite in float32."""


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """A clipped objective and where it was clipped. All fields have the shape of the ratio."""

    loss: Tensor
    is_clipped: Tensor
    """bool: the ratio had left its range in the direction of the advantage."""
    is_dual_clipped: Tensor
    """bool: the bound of negative advantages limited the loss."""


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """PPO's loss of a micro-batch."""

    per_token_BT: Tensor
    """`[B, T]` float32: the loss, 0 where the mask is 0."""
    ratio_BT: Tensor
    """`[B, T]` float32: 1 where the mask is 0."""
    metrics: dict[str, Tensor]


def log_ratios(log_prob_BT: Tensor, old_log_prob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B, T]` float32: `log pi - log pi_old`, clamped; exactly 0 without gradient where the mask is 0.

    So the ratio of an observation is 1, even if its log-probs are NaN or infinite.
    """
    log_ratio_BT = masked(log_prob_BT.float() - old_log_prob_BT.float(), mask_BT)
    return log_ratio_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clip_objective(ratio: Tensor, advantages: Tensor, *, low: float, high: float, dual: float) -> Clipped:
    """Returns `-min(rho A, clip(rho, 1 - low, 1 + high) A)`, and for negative advantages at most `-dual A`.

    Args:
        ratio: float, any shape.
        advantages: float, the same shape.
        low: how far below 1 the ratio may go (clip-higher: 0.2).
        high: how far above 1 the ratio may go (clip-higher: 0.28).
        dual: bound of the ratio of negative advantages, above 1.

    Paper: https://arxiv.org/abs/1707.06347, dual clip https://arxiv.org/abs/1912.09729
    """
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    worst = torch.maximum(unclipped, clipped)
    bound = -advantages * dual
    is_negative = advantages < 0
    return Clipped(
        loss=torch.where(is_negative, torch.minimum(worst, bound), worst),
        is_clipped=clipped > unclipped,
        is_dual_clipped=is_negative & (worst > bound),
    )


def ppo_surrogate(batch: LossBatch) -> Surrogate:
    """Returns PPO's loss of every sampled token, times `is_weights_BT` if they are known.

    Metrics: `pg_clipfrac`, `pg_clipfrac_lower` and `ppo_kl = mean(-ln rho)` are verl's;
    `approx_kl = mean((rho - 1) - ln rho)` is never negative. All are means over sampled tokens.
    """
    mask_BT = batch.mask_BT
    log_ratio_BT = log_ratios(batch.log_prob_BT, batch.old_log_prob_BT, mask_BT)
    ratio_BT = log_ratio_BT.exp()
    clipped = clip_objective(
        ratio_BT, masked(batch.advantages_BT, mask_BT), low=batch.clip_low, high=batch.clip_high, dual=batch.clip_dual
    )
    per_token_BT = clipped.loss
    if batch.is_weights_BT is not None:
        per_token_BT = per_token_BT * masked(batch.is_weights_BT, mask_BT)
    metrics = {
        "pg_clipfrac": token_mean(clipped.is_clipped, mask_BT),
        "pg_clipfrac_lower": token_mean(clipped.is_dual_clipped, mask_BT),
        "ppo_kl": token_mean(-log_ratio_BT, mask_BT),
        "approx_kl": token_mean(log_ratio_BT.expm1() - log_ratio_BT, mask_BT),
        "ratio_mean": token_mean(ratio_BT, mask_BT),
    }
    return Surrogate(per_token_BT=per_token_BT, ratio_BT=ratio_BT, metrics=metrics)
