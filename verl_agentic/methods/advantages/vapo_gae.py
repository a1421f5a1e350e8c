"""VAPO's advantages: lambda 1 for the critic, and a lambda for the policy that grows with the episode."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import token_critic_metrics
from verl_agentic.credit.credit.gae import (
    critic_targets,
    following_rows,
    gae,
    returns_to_go,
    trained_tokens,
    whitened,
)


def length_adaptive_lambda(lengths: Tensor, *, alpha: float) -> Tensor:
    """Returns `max(0, 1 - 1 / (alpha * length))`.

    The weights of all later errors then sum to `alpha * length`, the same share of every episode.
    """
    return (1.0 - 1.0 / (alpha * lengths.clamp(min=1))).clamp(min=0.0)


@advantage(needs=("values_BT",), discounts={"gamma": "token"})
def vapo_gae(batch: CreditBatch, *, alpha: float = 0.05, gamma: float = 1.0, whiten: bool = True) -> Advantages:
    """Returns generalised advantages of tokens, with lambda `1 - 1 / (alpha * l)`; the critic's lambda is 1.

    l is the number of sampled tokens of the session. The critic is trained towards the actual returns, so its values do
    not bootstrap from themselves over thousands of tokens. Observations are not discounted. The rows of a session form
    one chain. Void rows get 0. Groups are not used.

    Set the rest of VAPO elsewhere: clip-higher and token-mean in verl's actor, `trainer.critic_warmup`, and the policy
    loss `vapo` for the imitation loss on successes.

    Args:
        gamma: discount per sampled token.
        whiten: over the sampled tokens of the batch, as verl's `gae`.

    Paper: https://arxiv.org/abs/2504.05118. Deviations: the paper has one row per episode and no observations. Lambda 0
    for l <= 20 is ours.
    """
    assert batch.values_BT is not None
    trained_BT, next_B = trained_tokens(batch), following_rows(batch)
    lengths_S = batch.sum_per_session(trained_BT.sum(dim=1).float())
    lam_B = length_adaptive_lambda(lengths_S, alpha=alpha)[batch.session_B]
    advantages_BT = gae(
        batch.rewards_BT, batch.values_BT, trained_BT, next_B=next_B, gamma=gamma, lam=lam_B.unsqueeze(1)
    )
    returns_BT = returns_to_go(batch.rewards_BT, trained_BT, next_B=next_B, gamma=gamma)
    return Advantages(
        advantages_BT=whitened(advantages_BT, trained_BT) if whiten else advantages_BT,
        returns_BT=critic_targets(batch, returns_BT, trained_BT),
        metrics=token_critic_metrics(batch, returns_BT),
    )
