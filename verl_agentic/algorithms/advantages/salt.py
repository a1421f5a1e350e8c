"""SALT: what a step is worth, by the sessions that share it."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import Advantages, CreditBatch
from verl_agentic.algorithms.credit.step_groups import (
    END,
    Base,
    SessionTurns,
    StepList,
    at_steps,
    joint_ids,
    session_advantages,
)
from verl_agentic.errors import ConfigError

Tensor = torch.Tensor


@advantage(needs=("turn_ids_BT", "steps"), compares_siblings=True)
def salt(batch: CreditBatch, *, base: Base = "grpo", history: int = 0) -> Advantages:
    """Returns `[B, T]`: the group advantage; a step that several sessions of a group share gets the mean of theirs.

    A step is an edge (state, action, next state) of the graph of all sessions of a group; after the last turn of a
    session stands an end that is like no state. With A[i] the `base` advantage of session i, every step gets the mean
    of A[i] over the sessions i that contain its edge, each counted once however often it takes it. A step of one
    session only keeps A[i], so that without shared steps this is `base`, to the bit; and so do turns without a step and
    rows of sub-agents. Sessions alone in their group get 0; void rows neither count nor learn.

    Args:
        batch: see `CreditBatch`.
        base: `grpo`, `dr_grpo` or `rloo`; see `step_groups.session_advantages`.
        history: how many steps before it must be the same, too, for a step to be shared.

    What makes two steps the same is ours (the keys of `agent_loops.records.step_keys`), and so is `history` with its
    default: the paper's own were not to be read.

    Paper: https://arxiv.org/abs/2510.20022
    """
    assert batch.steps is not None
    advantages_S, steps = session_advantages(batch, base=base), StepList.of(batch)
    played = SessionTurns.of(batch)
    values_N = _means(advantages_S[steps.session_N], edge_N=_edges(steps, history=history), session_N=steps.session_N)
    own_Bk = advantages_S[batch.session_B].unsqueeze(-1).expand(played.turns.exists_BK.shape)
    values_Bk = steps.to_turns(values_N, steps=batch.steps, turns=played.turns, otherwise_Bk=own_Bk)
    advantages_BT = played.to_tokens(values_Bk)
    return Advantages(advantages_BT=advantages_BT, returns_BT=advantages_BT, sessions_S=advantages_S)


def _edges(steps: StepList, *, history: int) -> Tensor:
    """Returns `[N]` numbers of edges, from 0 without gaps; edges of two groups are never the same."""
    if history < 0:
        raise ConfigError(f"history must not be negative, got {history}; it is a number of steps")
    columns, place_N = [], steps.before_N
    for _ in range(history):
        columns += [at_steps(key_N, place_N, default=END) for key_N in (steps.state_N, steps.action_N)]
        place_N = at_steps(steps.before_N, place_N, default=-1)
    next_N = at_steps(steps.state_N, steps.after_N, default=END)
    return joint_ids(steps.group_N, steps.state_N, steps.action_N, next_N, *columns)


def _means(values_N: Tensor, *, edge_N: Tensor, session_N: Tensor) -> Tensor:
    """Returns `[N]` means over the sessions of every edge, of values that are the same for all steps of a session."""
    num_edges = int(edge_N.max()) + 1 if len(edge_N) else 0
    pair_N = joint_ids(edge_N, session_N)
    num_pairs = int(pair_N.max()) + 1 if len(pair_N) else 0
    # One step of every pair of edge and session stands for all of them: their values are the same.
    value_P = values_N.new_zeros(num_pairs).scatter_(0, pair_N, values_N)
    edge_P = edge_N.new_zeros(num_pairs).scatter_(0, pair_N, edge_N)
    sums_E = values_N.new_zeros(num_edges).index_add_(0, edge_P, value_P)
    counts_E = values_N.new_zeros(num_edges).index_add_(0, edge_P, torch.ones_like(value_P))
    return (sums_E / counts_E)[edge_N]
