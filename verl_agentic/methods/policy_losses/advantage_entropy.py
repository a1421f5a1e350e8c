"""PPO weighted by entropy times the absolute advantage."""

from __future__ import annotations

from typing import cast

from verl_agentic.credit.aggregate import Tensor, weights_of_mean_one
from verl_agentic.credit.losses.ppo import ppo_surrogate
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss


@policy_loss(needs=("entropy_BT",))
def advantage_entropy(batch: LossBatch) -> Loss:
    """Returns `masked_ppo` times `w_t = |A_t| H_t / mean_t(|A| H)`, of mean 1 over the sampled tokens of a row.

    The idea is known, the rule is ours. Both signs of the advantage count equally, and each row has its own mean, as in
    `entropy_weighted`. If the advantage is constant over a row, both losses are equal, so use this one with turn- or
    token-level advantages. Weights have no gradient. A row of zero weights gets weights of 1.
    """
    surrogate = ppo_surrogate(batch)
    scores_BT = batch.advantages_BT.float().abs() * cast("Tensor", batch.entropy_BT).float()
    weights_BT = weights_of_mean_one(scores_BT, batch.mask_BT)
    return Loss(per_token_BT=surrogate.per_token_BT * weights_BT, metrics=surrogate.metrics)
