"""GAE over turns, then GAE over the tokens of each turn towards the turn's return."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import critic_metrics
from verl_agentic.credit.credit.gae import critic_targets, gae, scan, td_errors, where_known, whitened
from verl_agentic.credit.credit.turn_states import TurnStates


@advantage(needs=("turn_ids_BT", "values_BT"), discounts={"turn_gamma": "turn", "gamma": "token"})
def bilevel_gae(
    batch: CreditBatch, *, turn_gamma: float = 0.95, gamma: float = 1.0, lam: float = 1.0, whiten: bool = True
) -> Advantages:
    """Returns advantages of tokens inside turns; each turn ends in its own lambda-return.

    The first pass goes over turns, with the value at the last sampled token of each turn:
    `A[k] = r[k] + turn_gamma * V[k+1] - V[k] + turn_gamma * lam * A[k+1]`, `R[k] = A[k] + V[k]`. The second pass goes
    over the tokens of each turn. R[k] is the reward of the last token, and the value after it is 0: `A[t] = r[t] +
    gamma * V[t+1] - V[t] + gamma * lam * A[t+1]`. The critic is trained towards `A[t] + V[t]`.

    A session of several rows is one chain of turns. Void rows get 0. Groups are not used.

    Deviations from RAGEN: turns have explicit boundaries (in RAGEN a non-zero reward ends a turn), rewards inside a
    turn count for the turn, and the rows of a session are joined.

    Args:
        turn_gamma: discount per turn.
        gamma: discount per token inside a turn.
        lam: lambda of both levels.
        whiten: over the sampled tokens of the batch.

    Paper: https://arxiv.org/abs/2504.20073 (its code: `high_level_gamma`)
    """
    assert batch.values_BT is not None
    states = TurnStates.of(batch)
    values_BK = states.at_last(batch.values_BT)
    discounts = {"next_B": states.next_B, "gamma": turn_gamma}
    returns_BK = values_BK + gae(states.rewards_BK, values_BK, states.exists_BK, lam=lam, **discounts)
    trained_BT = states.turns.mask_BT
    values_BT = where_known(batch.values_BT, trained_BT)
    if gamma == 1.0 and lam == 1.0:
        advantages_BT = states.to_tokens(returns_BK) - values_BT
    else:
        advantages_BT = _inside_turns(states, returns_BK, values_BT, gamma=gamma, lam=lam)
    return Advantages(
        advantages_BT=whitened(advantages_BT, trained_BT) if whiten else advantages_BT,
        returns_BT=critic_targets(batch, advantages_BT + values_BT, trained_BT),
        metrics=critic_metrics(batch, values_BK, states.rewards_BK, states.exists_BK, **discounts),
    )


def _inside_turns(states: TurnStates, returns_BK: Tensor, values_BT: Tensor, *, gamma: float, lam: float) -> Tensor:
    trained_BT, ends_BT = states.turns.mask_BT, states.is_last()
    errors_BT = td_errors(torch.zeros_like(values_BT), values_BT, trained_BT, next_B=states.next_B, gamma=gamma)
    errors_BT = torch.where(ends_BT, states.to_tokens(returns_BK) - values_BT, errors_BT)
    decays_BT = torch.where(trained_BT, gamma * lam, 1.0).masked_fill(ends_BT, 0.0)
    return torch.where(trained_BT, scan(errors_BT, decays_BT, next_B=states.next_B), 0.0)
