"""VAPO: PPO's clipped loss, and imitation of what succeeded."""

from __future__ import annotations

from typing import cast

import torch

from verl_agentic.algorithms.aggregate import as_floats, masked, token_mean
from verl_agentic.algorithms.losses.ppo import ppo_surrogate
from verl_agentic.algorithms.policy_loss import Loss, LossBatch, policy_loss

Tensor = torch.Tensor

_FULL = 1.0 - 1e-9


def is_success(outcome_B: Tensor) -> Tensor:
    """Returns `[B]` bool: rows whose raw outcome is full; not those that have none (NaN)."""
    return outcome_B.float() >= _FULL


def positive_share(outcome_B: Tensor, num_tokens_B: Tensor) -> float:
    """Returns the share of a batch's sampled tokens that lie in rows of successes; 0 without any.

    Args:
        outcome_B: `[B]` float: raw outcomes.
        num_tokens_B: `[B]` int64: sampled tokens.
    """
    return float((num_tokens_B * is_success(outcome_B)).sum() / num_tokens_B.sum().clamp(min=1))


@policy_loss(needs=("outcome_B", "positive_share_B"), only_token_mean=True)
def vapo(batch: LossBatch, *, lm_coef: float = 0.1) -> Loss:
    """Returns PPO's loss per sampled token, plus `lm_coef * -log pi / s` on the tokens of rows that succeeded.

    s is the share of such tokens in the whole batch, so that with `actor.loss_agg_mode=token-mean` the second term is
    `lm_coef` times the mean of `-log pi` over the tokens of successes. Rows without a finite outcome are no successes;
    a batch without any has no second term. Clip-higher is verl's `clip_ratio_high=0.28`.

    Deviation: the paper divides by the tokens of successes in the mini-batch, this by those that a mini-batch of the
    batch has on average; where a step is one mini-batch, both are the same.

    Args:
        lm_coef: weight of the second term; the paper's mu.

    Paper: https://arxiv.org/abs/2504.05118 (section 4.3)
    """
    surrogate = ppo_surrogate(batch)
    positive_BT = batch.mask_BT & is_success(cast("Tensor", batch.outcome_B)).unsqueeze(-1)
    share_B1 = cast("Tensor", batch.positive_share_B).float().unsqueeze(-1)
    nll_BT = -masked(batch.log_prob_BT, positive_BT)
    # Where the share is 0 there is no success to be divided by it.
    lm_BT = nll_BT / torch.where(share_B1 > 0, share_B1, 1.0)
    metrics = as_floats(
        {"positive_nll": token_mean(nll_BT, positive_BT), "positive_share": token_mean(positive_BT, batch.mask_BT)}
    )
    return Loss(
        per_token_BT=surrogate.per_token_BT + lm_coef * lm_BT,
        metrics={**surrogate.metrics, **metrics},
    )
