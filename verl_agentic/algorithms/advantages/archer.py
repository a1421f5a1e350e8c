"""ArCHer: a critic of whole turns tells what each was worth; every token of a turn gets that."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import Advantages, CreditBatch
from verl_agentic.algorithms.credit.explained_variance import critic_metrics
from verl_agentic.algorithms.credit.gae import critic_targets, next_values
from verl_agentic.algorithms.credit.turn_states import TurnStates

Tensor = torch.Tensor


def q_targets(rewards: Tensor, next_values: Tensor, done: Tensor, *, gamma: float = 0.9) -> Tensor:
    """Returns `r + gamma * (1 - done) * V'`: what Q of a state and a turn is trained towards.

    Args:
        rewards: any shape, float: of the turn.
        next_values: the target network's V of the state after it.
        done: bool: no state comes after it.
        gamma: discount per turn.
    """
    return rewards + gamma * torch.where(done, 0.0, next_values)


@advantage(needs=("turn_ids_BT", "values_BT"), accepts=("target_values_BT",), discounts={"gamma": "turn"})
def archer(batch: CreditBatch, *, gamma: float = 0.9) -> Advantages:
    """Returns `Q(s[k], turn) - V(s[k])` on every sampled token of turn k, not whitened.

    One critic is both: V is its value at the turn's first sampled token, Q that at its last, when the turn is as good
    as spoken. It is trained at these two tokens, Q towards `q_targets` with the V of the next turn (in the next row of
    the session, after a row's last), V towards Q of the turn that the policy took; elsewhere towards its own value.
    What it is trained towards is of the target network, where there is one (`agentic.critic.target: {tau: 0.1}`). A
    turn of one token gets advantage 0, and trains Q. Rewards reach the policy through the critic alone: let it warm up
    (verl's `trainer.critic_warmup`), or the advantages are noise. Void rows get 0. Groups play no role.

    Deviations: verl trains one critic, so there is one Q and one V (the paper takes the smaller of two). Without a
    target network the critic as it was before this step's updates is it. Targets hold for all updates of a step, while
    the paper's move with each. V's target is Q of the turn that was sampled, not of one that is sampled anew.

    Args:
        batch: needs turn ids and values; takes those of a target network.
        gamma: discount per turn.

    Paper: https://arxiv.org/abs/2402.19446 (gamma 0.9 and tau 0.1 from its code)
    """
    assert batch.values_BT is not None
    states = TurnStates.of(batch)
    exists_BK, next_B = states.exists_BK, states.next_B
    v_BK, q_BK = states.at_first(batch.values_BT), states.at_last(batch.values_BT)
    slow_BT = batch.values_BT if batch.target_values_BT is None else batch.target_values_BT
    slow_v_BK, slow_q_BK = states.at_first(slow_BT), states.at_last(slow_BT)
    # After the last turn the next value is 0 already.
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
