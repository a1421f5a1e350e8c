"""Retrace: off-policy targets for Q of whole turns."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import critic_metrics
from verl_agentic.credit.credit.gae import critic_targets, next_values, scan, where_known
from verl_agentic.credit.credit.turn_states import TurnStates


def trace_weights(ratios: Tensor, *, lam: float = 1.0) -> Tensor:
    """Returns `lam * min(1, ratio)`: the weight with which later errors count for earlier actions."""
    return lam * ratios.clamp(max=1.0)


def retrace_targets(
    rewards_BN: Tensor,
    q_BN: Tensor,
    later_BN: Tensor,
    weights_BN: Tensor,
    exists_BN: Tensor,
    *,
    next_B: Tensor,
    gamma: float,
) -> Tensor:
    """Returns `[B, N]` `Q + D`, `D = r + gamma * V' - Q + gamma * c' * D'`; 0 where `exists_BN` is false.

    Args:
        q_BN: `[B, N]` float: Q of the state and action at this place.
        later_BN: `[B, N]` float: value of the next state under the trained policy, 0 after the end.
        weights_BN: `[B, N]` float: c at this place (c' at the next).
        gamma: discount per place.
    """
    q_BN, rewards_BN = where_known(q_BN, exists_BN), where_known(rewards_BN, exists_BN)
    errors_BN = torch.where(exists_BN, rewards_BN + gamma * later_BN - q_BN, 0.0)
    next_weights_BN = next_values(where_known(weights_BN, exists_BN), exists_BN, next_B=next_B)
    decays_BN = torch.where(exists_BN, gamma * next_weights_BN, 1.0)
    return torch.where(exists_BN, q_BN + scan(errors_BN, decays_BN, next_B=next_B), 0.0)


@advantage(needs=("turn_ids_BT", "values_BT", "old_log_probs_BT", "rollout_log_probs_BT"), discounts={"gamma": "turn"})
def retrace(batch: CreditBatch, *, gamma: float = 0.99, lam: float = 1.0) -> Advantages:
    """Returns Retrace's Q targets minus V, on every sampled token of a turn, not whitened.

    V of a turn is the critic's value at its first sampled token, Q its value at the last one (as in `archer`). The
    ratio of a turn is the product of its tokens' ratios: probability before this step's updates over probability at
    rollout. The critic is trained at these two tokens: Q towards `retrace_targets`, V towards `V + min(1, ratio) *
    (target - V)`. Other tokens are trained towards the critic's own value. A turn of one token trains Q. Sessions of
    several rows are one chain of turns. Void rows get 0. Groups are not used.

    Args:
        gamma: discount per turn.
        lam: lambda of the trace.

    Paper: https://arxiv.org/abs/1606.02647 for Q alone. Deviations: an action is a turn, one critic gives Q and V, V's
    target and the advantage are ours. Lambda 1 is the paper's.
    """
    assert batch.values_BT is not None and batch.old_log_probs_BT is not None
    assert batch.rollout_log_probs_BT is not None
    states = TurnStates.of(batch)
    exists_BK, next_B, rewards_BK = states.exists_BK, states.next_B, states.rewards_BK
    v_BK, q_BK = states.at_first(batch.values_BT), states.at_last(batch.values_BT)
    ratios_BK = states.sums(batch.old_log_probs_BT.float() - batch.rollout_log_probs_BT.float()).exp()
    later_BK = next_values(v_BK, exists_BK, next_B=next_B)
    weights_BK = trace_weights(ratios_BK, lam=lam)
    target_BK = retrace_targets(rewards_BK, q_BK, later_BK, weights_BK, exists_BK, next_B=next_B, gamma=gamma)
    v_target_BK = v_BK + ratios_BK.clamp(max=1.0) * (target_BK - v_BK)
    is_q_BT = states.is_last()
    targets_BT = torch.where(is_q_BT, states.to_tokens(target_BK), states.to_tokens(v_target_BK))
    return Advantages(
        advantages_BT=states.to_tokens(target_BK - v_BK),
        returns_BT=critic_targets(batch, targets_BT, is_q_BT | states.is_first()),
        metrics=critic_metrics(batch, v_BK, rewards_BK, exists_BK, next_B=next_B, gamma=gamma),
    )
