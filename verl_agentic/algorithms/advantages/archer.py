"""ArCHer: a critic of whole turns tells what each was worth; every token of a turn gets that."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit import Advantages, CreditBatch
from verl_agentic.algorithms.explained_variance import critic_metrics
from verl_agentic.algorithms.gae import critic_targets, next_values
from verl_agentic.algorithms.turn_states import TurnStates

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


def polyak(target: Tensor, online: Tensor, *, tau: float = 0.1) -> Tensor:
    """Returns `tau * online + (1 - tau) * target`: the next weights of a target network."""
    return torch.lerp(target, online, tau)


@advantage(needs=("turn_ids_BT", "values_BT"))
def archer(batch: CreditBatch, *, gamma: float = 0.9) -> Advantages:
    """Returns `Q(s[k], turn) - V(s[k])` on every sampled token of turn k, not whitened.

    One critic is both: V is its value at the turn's first sampled token, Q that at its last, when the turn is as good
    as spoken. It is trained at these two tokens, Q towards `q_targets` with the V of the next turn (in the next row of
    the session, after a row's last), V towards Q of the turn that the policy took; elsewhere towards its own value. A
    turn of one token gets advantage 0, and trains Q. Rewards reach the policy through the critic alone: let it warm up
    (verl's `trainer.critic_warmup`), or the advantages are noise. Void rows get 0. Groups play no role.

    Deviations: verl trains one critic, with no copy of it. So there is one Q and one V (the paper takes the smaller of
    two), and the target network is the critic as it was before this step's updates (`polyak` of 1 once a step; the
    paper's 0.1 needs a second critic). V's target is Q of the turn that was sampled, not of one that is sampled anew.

    Args:
        batch: needs turn ids and values.
        gamma: discount per turn.

    Paper: https://arxiv.org/abs/2402.19446 (gamma 0.9 and tau 0.1 from its code)
    """
    assert batch.values_BT is not None
    states = TurnStates.of(batch)
    exists_BK, next_B = states.exists_BK, states.next_B
    v_BK, q_BK = states.at_first(batch.values_BT), states.at_last(batch.values_BT)
    # After the last turn the next value is 0 already.
    later_BK = next_values(v_BK, exists_BK, next_B=next_B)
    target_BK = q_targets(states.rewards_BK, later_BK, ~exists_BK, gamma=gamma)
    is_q_BT = states.is_last()
    targets_BT = torch.where(is_q_BT, states.to_tokens(target_BK), states.to_tokens(q_BK))
    return Advantages(
        advantages_BT=states.to_tokens(q_BK - v_BK),
        returns_BT=critic_targets(batch, targets_BT, is_q_BT | states.is_first()),
        metrics=critic_metrics(batch, v_BK, states.rewards_BK, exists_BK, next_B=next_B, gamma=gamma),
    )
