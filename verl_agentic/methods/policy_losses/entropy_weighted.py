"""PPO weighted by entropy."""

from __future__ import annotations

from typing import cast

from verl_agentic.credit.aggregate import Tensor, weights_of_mean_one
from verl_agentic.credit.losses.ppo import ppo_surrogate
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss


@policy_loss(needs=("entropy_BT",))
def entropy_weighted(batch: LossBatch) -> Loss:
    """Returns `masked_ppo` times `w_t = H_t / mean_t(H)`, the entropy of a token over the mean of its row.

    Weights have mean 1 over the sampled tokens of a row, and no gradient. A row without entropy is plain PPO. The idea
    is known, the formula is ours: the mean is taken per row, so that the weight of a row does not depend on its
    micro-batch.
    """
    surrogate = ppo_surrogate(batch)
    weights_BT = weights_of_mean_one(cast("Tensor", batch.entropy_BT), batch.mask_BT)
    return Loss(per_token_BT=surrogate.per_token_BT * weights_BT, metrics=surrogate.metrics)
