"""ArCHer: a critic values whole turns; every token of a turn gets the advantage of its turn."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import critic_metrics
from verl_agentic.credit.credit.gae import critic_targets, next_values
from verl_agentic.credit.credit.turn_states import TurnStates


def q_targets(rewards: Tensor, next_values: Tensor, is_last: Tensor, *, gamma: float = 0.9) -> Tensor:
    """Returns `r + gamma * (1 - is_last) * V'`, the target of Q(state, turn).

    Args:
        rewards: float, any shape: rewards of the turns.
        next_values: the target network's V of the next state.
        is_last: bool: the turn is the last one.
        gamma: discount per turn.
    """
    return rewards + gamma * torch.where(is_last, 0.0, next_values)


@advantage(needs=("turn_ids_BT", "values_BT"), accepts=("target_values_BT",), discounts={"gamma": "turn"})
def archer(batch: CreditBatch, *, gamma: float = 0.9) -> Advantages:
    """Returns `Q(s[k], turn) - V(s[k])` on every sampled token of turn k, not whitened.

    One critic estimates both: V is its value at the turn's first sampled token, Q its value at the last one. The critic
    is trained at these two tokens. Q is trained towards `q_targets` with the V of the session's next turn, V towards
    the Q of the sampled turn. Other tokens are trained towards the critic's own value. Targets use the target network
    if there is one (`agentic.critic.target: {tau: 0.1}`). A turn of one token gets advantage 0 and trains Q.

    Rewards reach the policy through the critic only. Set verl's `trainer.critic_warmup`, or the first advantages are
    noise. Void rows get 0. Groups are not used.

    Deviations: verl trains one critic, so there is one Q and one V (the paper takes the smaller of two). Without a
    target network, the critic before this step's updates takes its place. Targets stay fixed during a step; the paper's
    change with each update. V's target is Q of the sampled turn, not of a resampled one.

    Args:
        gamma: discount per turn.

    Paper: https://arxiv.org/abs/2402.19446 (gamma 0.9 and tau 0.1: defaults of its code; its config has 0.95)
    """
    assert batch.values_BT is not None
    states = TurnStates.of(batch)
    exists_BK, next_B = states.exists_BK, states.next_B
    v_BK, q_BK = states.at_first(batch.values_BT), states.at_last(batch.values_BT)
    slow_BT = batch.values_BT if batch.target_values_BT is None else batch.target_values_BT
    slow_v_BK, slow_q_BK = states.at_first(slow_BT), states.at_last(slow_BT)
    # `later_BK` is already 0 after the last turn.
    later_BK = next_values(slow_v_BK, exists_BK, next_B=next_B)
    target_BK = q_targets(states.rewards_BK, later_BK, ~exists_BK, gamma=gamma)
    is_q_BT = states.is_last()
    targets_BT = torch.where(is_q_BT, states.to_tokens(target_BK), states.to_tokens(slow_q_BK))
    metrics = critic_metrics(batch, v_BK, states.rewards_BK, exists_BK, next_B=next_B, gamma=gamma)
    if batch.target_values_BT is not None:
        # Both are 0 where there is no turn.
        metrics["credit/target_gap"] = float((v_BK - slow_v_BK).abs().sum() / exists_BK.sum().clamp(min=1))
    return Advantages(
        advantages_BT=states.to_tokens(q_BK - v_BK),
        returns_BT=critic_targets(batch, targets_BT, is_q_BT | states.is_first()),
        metrics=metrics,
    )
