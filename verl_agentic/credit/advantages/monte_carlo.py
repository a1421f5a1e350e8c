"""REINFORCE: rewards to go from each token."""

from __future__ import annotations

import torch

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import token_critic_metrics
from verl_agentic.credit.credit.gae import following_rows, returns_to_go, trained_tokens, where_known


@advantage(discounts={"gamma": "token"})
def monte_carlo(batch: CreditBatch, *, gamma: float = 1.0) -> Advantages:
    """Returns discounted rewards to go, minus the critic's values if there is a critic.

    `G[t] = r[t] + gamma * G[t']`, `A[t] = G[t] - V[t]`, with t' the next sampled token of the session. Observations are
    not discounted, and rewards of later rows of the session count for earlier rows. Groups are not used, so singletons
    get a signal too. Nothing is whitened, unlike in verl's `reinforce_plus_plus`.

    Args:
        batch: if it has values, the critic is trained towards G.
        gamma: discount per sampled token. Below 1, the start of a long episode gets almost no reward: with one reward
            at the end, G falls as `gamma ** tokens_left`.
    """
    trained_BT = trained_tokens(batch)
    returns_BT = returns_to_go(batch.rewards_BT, trained_BT, next_B=following_rows(batch), gamma=gamma)
    if batch.values_BT is None:
        return Advantages(advantages_BT=returns_BT, returns_BT=returns_BT)
    return Advantages(
        advantages_BT=returns_BT - where_known(batch.values_BT, trained_BT),
        returns_BT=torch.where(trained_BT, returns_BT, where_known(batch.values_BT, batch.mask_BT)),
        metrics=token_critic_metrics(batch, returns_BT),
    )
