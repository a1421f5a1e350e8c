"""PPO that learns most where the policy was undecided and much depended on it."""

from __future__ import annotations

from typing import cast

from verl_agentic.algorithms.aggregate import Tensor, weights_of_mean_one
from verl_agentic.algorithms.losses.ppo import ppo_surrogate
from verl_agentic.algorithms.policy_loss import Loss, LossBatch, policy_loss


@policy_loss(needs=("entropy_BT",))
def advantage_entropy(batch: LossBatch) -> Loss:
    """Returns `masked_ppo` times `w_t = |A_t| H_t / mean_t(|A| H)`, of mean 1 over the sampled tokens of a row.

    The idea is the literature's, the rule ours: both signs of the advantage count alike (weights that leave negative
    ones out would only imitate what went well), and the mean is the row's own, as in `entropy_weighted`. Where the
    advantage is the same on a whole row, the two losses are the same: this one is for turn- and token-level
    advantages. Weights have no gradient; a row of zero weights has the weights 1.
    """
    surrogate = ppo_surrogate(batch)
    scores_BT = batch.advantages_BT.float().abs() * cast("Tensor", batch.entropy_BT).float()
    weights_BT = weights_of_mean_one(scores_BT, batch.mask_BT)
    return Loss(per_token_BT=surrogate.per_token_BT * weights_BT, metrics=surrogate.metrics)
