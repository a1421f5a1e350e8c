"""SALT: a step gets the mean advantage of the sessions that share it."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.step_groups import (
    END,
    Base,
    SessionTurns,
    StepList,
    at_steps,
    joint_ids,
    session_advantages,
)


@advantage(needs=("turn_ids_BT", "steps"), compares_siblings=True)
def salt(batch: CreditBatch, *, base: Base = "grpo", history: int = 0) -> Advantages:
    """Returns `[B, T]`: the group advantage, averaged over sessions for steps that several sessions share.

    A step is an edge (state, action, next state) in the graph of all sessions of a group. The last turn of a session
    leads to an end state that equals no other state. With A[i] the `base` advantage of session i, a step gets the mean
    of A[i] over the sessions that contain its edge. Each session counts once, however often it takes the edge. A step
    of one session keeps A[i], as do turns without a step and rows of sub-agents. So without shared steps the result
    equals `base` bit for bit. Void rows and sessions alone in their group get 0.

    Args:
        history: how many preceding steps must also be equal for a step to be shared.

    Our own choices, because the paper was not available: when two steps are equal (`episode.records.step_keys`),
    and `history` with its default.

    Paper: https://arxiv.org/abs/2510.20022
    """
    assert batch.steps is not None
    advantages_S, steps = session_advantages(batch, base=base), StepList.of(batch)
    played = SessionTurns.of(batch)
    values_N = _average_edges(
        advantages_S[steps.session_N], edge_N=_number_edges(steps, history=history), session_N=steps.session_N
    )
    own_Bk = advantages_S[batch.session_B].unsqueeze(-1).expand(played.turns.exists_BK.shape)
    values_Bk = steps.to_turns(values_N, steps=batch.steps, turns=played.turns, otherwise_Bk=own_Bk)
    advantages_BT = played.to_tokens(values_Bk)
    return Advantages(advantages_BT=advantages_BT, returns_BT=advantages_BT, sessions_S=advantages_S)


def _number_edges(steps: StepList, *, history: int) -> Tensor:
    """Returns `[N]` edge numbers, from 0 without gaps; edges of different groups differ."""
    if history < 0:
        raise ConfigError(f"history must not be negative, got {history}; it is a number of steps")
    columns, place_N = [], steps.before_N
    for _ in range(history):
        columns += [at_steps(key_N, place_N, default=END) for key_N in (steps.state_N, steps.action_N)]
        place_N = at_steps(steps.before_N, place_N, default=-1)
    next_N = at_steps(steps.state_N, steps.after_N, default=END)
    return joint_ids(steps.group_N, steps.state_N, steps.action_N, next_N, *columns)


def _average_edges(values_N: Tensor, *, edge_N: Tensor, session_N: Tensor) -> Tensor:
    """Returns `[N]`: the mean over the sessions of each edge. All steps of a session have one value."""
    num_edges = int(edge_N.max()) + 1 if len(edge_N) else 0
    pair_N = joint_ids(edge_N, session_N)
    num_pairs = int(pair_N.max()) + 1 if len(pair_N) else 0
    # One step per pair of edge and session is enough, because their values are equal.
    value_P = values_N.new_zeros(num_pairs).scatter_(0, pair_N, values_N)
    edge_P = edge_N.new_zeros(num_pairs).scatter_(0, pair_N, edge_N)
    sums_E = values_N.new_zeros(num_edges).index_add_(0, edge_P, value_P)
    counts_E = values_N.new_zeros(num_edges).index_add_(0, edge_P, torch.ones_like(value_P))
    return (sums_E / counts_E)[edge_N]
