"""VAPO: PPO's clipped loss plus imitation of successes."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import masked, token_mean
from verl_agentic.credit.losses.ppo import ppo_surrogate
from verl_agentic.credit.losses.successes import is_success
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(name="actor/positive_nll", unit="nats", per="token, mean of micro-batches", rows="tokens of successes"),
    Metric(name="actor/positive_share", unit="share", per="token, mean of micro-batches", rows="sampled tokens"),
)


@policy_loss(needs=("outcome_B", "positive_share_B"), only_token_mean=True)
def vapo(batch: LossBatch, *, lm_coef: float = 0.1) -> Loss:
    """Returns PPO's loss per sampled token, plus `lm_coef * -log pi / s` on the tokens of rows that succeeded.

    s is the share of such tokens in the whole batch. So with `actor.loss_agg_mode=token-mean` the second term is
    `lm_coef` times the mean of `-log pi` over these tokens. Rows without a finite outcome are not successes. Without
    successes there is no second term. Clip-higher is verl's `clip_ratio_high=0.28`.

    Deviations: the paper divides by the success tokens of the mini-batch, this loss by their average number per
    mini-batch. Both are equal if a step is one mini-batch.

    Args:
        lm_coef: weight of the second term; the paper's mu.

    Paper: https://arxiv.org/abs/2504.05118 (section 4.3)
    """
    surrogate = ppo_surrogate(batch)
    positive_BT = batch.mask_BT & is_success(cast("Tensor", batch.outcome_B)).unsqueeze(-1)
    share_B1 = cast("Tensor", batch.positive_share_B).float().unsqueeze(-1)
    nll_BT = -masked(batch.log_prob_BT, positive_BT)
    # If the share is 0 there are no successes, so the divisor does not matter.
    lm_BT = nll_BT / torch.where(share_B1 > 0, share_B1, 1.0)
    metrics = {
        **surrogate.metrics,
        "positive_nll": token_mean(nll_BT, positive_BT),
        "positive_share": token_mean(positive_BT, batch.mask_BT),
    }
    return Loss(per_token_BT=surrogate.per_token_BT + lm_coef * lm_BT, metrics=metrics)
