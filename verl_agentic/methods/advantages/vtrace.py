"""V-trace: values and advantages of the trained policy from tokens of an older policy."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import token_critic_metrics
from verl_agentic.credit.credit.gae import (
    critic_targets,
    following_rows,
    next_values,
    returns_to_go,
    scan,
    td_errors,
    trained_tokens,
    where_known,
)


def vtrace_targets(
    rewards_BN: Tensor,
    values_BN: Tensor,
    ratios_BN: Tensor,
    exists_BN: Tensor,
    *,
    next_B: Tensor,
    gamma: float = 1.0,
    lam: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """Returns `[B, N]` v with `v = V + rho * (r + gamma * V' - V) + gamma * c * (v' - V')`; 0 where `exists_BN` is
    false.

    `rho = min(rho_clip, ratio)` determines the policy whose values these are. `c = lam * min(c_clip, ratio)` determines
    how far later errors count.

    Args:
        ratios_BN: `[B, N]` float: probability under the trained policy over probability at rollout.
        gamma: discount per place.
        lam: 0: one-step errors.
        rho_clip: bound of rho.
        c_clip: bound of c.
    """
    values_BN, ratios_BN = where_known(values_BN, exists_BN), where_known(ratios_BN, exists_BN)
    errors_BN = td_errors(rewards_BN, values_BN, exists_BN, next_B=next_B, gamma=gamma)
    decays_BN = torch.where(exists_BN, gamma * lam * ratios_BN.clamp(max=c_clip), 1.0)
    corrections_BN = scan(ratios_BN.clamp(max=rho_clip) * errors_BN, decays_BN, next_B=next_B)
    return torch.where(exists_BN, values_BN + corrections_BN, 0.0)


@advantage(needs=("values_BT", "old_log_probs_BT", "rollout_log_probs_BT"), discounts={"gamma": "token"})
def vtrace(
    batch: CreditBatch, *, gamma: float = 1.0, lam: float = 1.0, rho_clip: float = 1.0, c_clip: float = 1.0
) -> Advantages:
    """Returns V-trace's policy-gradient advantages of tokens: `A = rho * (r + gamma * v' - V)`.

    v are the targets of `vtrace_targets`; the critic is trained towards them. The ratio of a token is its probability
    before this step's updates over its probability at rollout. Observations are not discounted and have no ratio. The
    rows of a session form one chain. Void rows get 0. Groups are not used.

    The advantages contain rho: turn verl's rollout correction weights off, or tokens are weighted twice.
    `credit/explained_variance` uses the actual returns, so those of the sampling policy.

    Args:
        gamma: discount per sampled token.
        lam: the lambda of the paper's remark 2.
        rho_clip: maximum weight of a token's own error.
        c_clip: maximum weight of later errors.

    Paper: https://arxiv.org/abs/1802.01561 (eq. 1). Deviations: the paper's gamma is 0.99 per frame; both bounds are 1,
    as in the paper.
    """
    assert batch.values_BT is not None and batch.old_log_probs_BT is not None
    assert batch.rollout_log_probs_BT is not None
    trained_BT, next_B = trained_tokens(batch), following_rows(batch)
    values_BT = where_known(batch.values_BT, trained_BT)
    rewards_BT = where_known(batch.rewards_BT, trained_BT)
    ratios_BT = (batch.old_log_probs_BT.float() - batch.rollout_log_probs_BT.float()).exp()
    targets_BT = vtrace_targets(
        rewards_BT,
        values_BT,
        ratios_BT,
        trained_BT,
        next_B=next_B,
        gamma=gamma,
        lam=lam,
        rho_clip=rho_clip,
        c_clip=c_clip,
    )
    later_BT = next_values(targets_BT, trained_BT, next_B=next_B)
    errors_BT = ratios_BT.clamp(max=rho_clip) * (rewards_BT + gamma * later_BT - values_BT)
    earned_BT = returns_to_go(rewards_BT, trained_BT, next_B=next_B, gamma=gamma)
    return Advantages(
        advantages_BT=torch.where(trained_BT, errors_BT, 0.0),
        returns_BT=critic_targets(batch, targets_BT, trained_BT),
        metrics=token_critic_metrics(batch, earned_BT),
    )
