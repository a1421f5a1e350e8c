"""Turns of sessions, and groups of steps that started from the same state.

Axes: B rows, T tokens, S sessions; K turns of a session, by turn id; N steps of valid rows. A step is a turn's start
state and its action. Rows of sub-agents are excluded (`CreditBatch.chain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.credit.credit.batch import CreditBatch, Steps
from verl_agentic.credit.credit.group_statistics import group_centred, group_counts, group_stds
from verl_agentic.credit.credit.turn_tokens import Turns

Base = Literal["grpo", "dr_grpo", "rloo"]
EPSILON = 1e-6
"""Added to standard deviations, as in verl."""
END = -2
"""The state after the last turn of a session. Hashes are never negative."""


def steps_of(rows: Sequence[Sequence[Sequence[int]]], device: torch.device | str = "cpu") -> Steps:
    """Returns the steps of `[B]` rows as tensors.

    Args:
        rows: the `(turn, state, action)` of every row, as `episode.records.step_keys` makes them; empty for a row
            without steps. Keys are not negative.

    Raises:
        DataError: a row has two steps of one turn.
    """
    counts_B = np.array([len(row) for row in rows], dtype=np.int64)
    flat_N3 = np.array([step for row in rows for step in row], dtype=np.int64).reshape(-1, 3)
    row_N, turn_N = np.repeat(np.arange(len(rows)), counts_B), flat_N3[:, 0]
    first_B = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(first_B, row_N, turn_N)
    first_B[counts_B == 0] = 0
    column_N = turn_N - first_B[row_N]
    keys_B2K = np.full((len(rows), 2, int(column_N.max(initial=0)) + 1), -1, dtype=np.int64)
    keys_B2K[row_N, :, column_N] = flat_N3[:, 1:]
    if (keys_B2K[:, 0] >= 0).sum() != len(flat_N3):
        raise DataError("a row has one step a turn and keys that are not negative, got others; fix what made them")
    state_BK, action_BK = (torch.from_numpy(np.ascontiguousarray(keys_B2K[:, i])).to(device) for i in (0, 1))
    return Steps(state_BK=state_BK, action_BK=action_BK, first_turn_B=torch.from_numpy(first_B).to(device))


def joint_ids(*columns_N: Tensor) -> Tensor:
    """Returns `[N]` int64: numbers from 0 without gaps, equal where all columns are equal, in lexicographic order."""
    ids_N = torch.unique(columns_N[0], return_inverse=True)[1]
    for column_N in columns_N[1:]:
        values, numbers_N = torch.unique(column_N, return_inverse=True)
        ids_N = torch.unique(ids_N * len(values) + numbers_N, return_inverse=True)[1]
    return ids_N


def session_advantages(batch: CreditBatch, *, base: Base) -> Tensor:
    """Returns `[S]` float64: advantages of sessions over their group; 0 for void sessions and singletons.

    Args:
        batch: each valid session counts once.
        base: `dr_grpo`: r - mean; `grpo`: (r - mean) / (sample std + 1e-6); `rloo`: r - mean of the others.

    Raises:
        ConfigError: unknown base.
    """
    among = {"group_N": batch.group_S, "valid_N": batch.valid_S, "num_groups": batch.num_groups}
    centred_S = group_centred(batch.outcomes_S, **among)
    if base == "dr_grpo":
        return centred_S
    if base == "grpo":
        return centred_S / (group_stds(batch.outcomes_S, **among, ddof=1) + EPSILON)
    if base == "rloo":
        counts_S = group_counts(**among)
        return centred_S * counts_S / (counts_S - 1).clamp(min=1.0)
    raise ConfigError(f"unknown base advantage, got {base!r}; use 'grpo', 'dr_grpo' or 'rloo'")


@dataclass(frozen=True, kw_only=True)
class SessionTurns:
    """The turns of whole sessions, over all of their rows."""

    turns: Turns
    batch: CreditBatch
    exists_SK: Tensor
    """`[S, K]` bool: the session sampled something in turn k."""
    rewards_SK: Tensor
    """`[S, K]` float: sums of rewards per turn."""

    @classmethod
    def of(cls, batch: CreditBatch) -> SessionTurns:
        """Returns the turns of a batch that has turn ids."""
        assert batch.turn_ids_BT is not None
        turns = Turns.of(batch.turn_ids_BT, batch.mask_BT)
        counts_BK = turns.exists_BK & batch.valid_B.unsqueeze(-1)
        num_turns = max(int(turns.id_BK.max()), 0) + 1 if turns.id_BK.numel() else 1
        cells = batch.session_B.unsqueeze(-1) * num_turns + turns.id_BK.clamp(min=0)
        sums = torch.zeros(batch.num_sessions * num_turns, device=cells.device)
        return cls(
            turns=turns,
            batch=batch,
            exists_SK=sums.index_add(0, cells[counts_BK], torch.ones_like(cells[counts_BK], dtype=sums.dtype))
            .view(batch.num_sessions, num_turns)
            .gt(0),
            rewards_SK=sums.index_add(0, cells[counts_BK], turns.sums(batch.rewards_BT)[counts_BK]).view(
                batch.num_sessions, num_turns
            ),
        )

    def returns_to_go(self, *, gamma: float) -> Tensor:
        """Returns `[S, K]` float: the return from turn k on, discounted by `gamma` per turn."""
        returns_SK = self.rewards_SK.clone()
        for k in range(returns_SK.shape[1] - 2, -1, -1):
            returns_SK[:, k] += gamma * returns_SK[:, k + 1]
        return returns_SK

    def to_rows(self, values_SK: Tensor) -> Tensor:
        """Returns `[B, k]`: the session's values for every turn of a row."""
        return values_SK[self.batch.session_B.unsqueeze(-1), self.turns.id_BK.clamp(min=0)]

    def to_tokens(self, values_Bk: Tensor) -> Tensor:
        """Returns `[B, T]` float32: turn values on sampled tokens; 0 elsewhere and on void rows."""
        return self.turns.to_tokens((values_Bk * self.batch.valid_B.unsqueeze(-1)).float())


@dataclass(frozen=True, kw_only=True)
class StepList:
    """All steps of valid rows."""

    row_N: Tensor
    column_N: Tensor
    """`[N]` int64: row and column in `Steps`."""
    session_N: Tensor
    group_N: Tensor
    turn_N: Tensor
    state_N: Tensor
    action_N: Tensor
    after_N: Tensor
    """`[N]` int64: the session's next step; -1 after the last one."""
    before_N: Tensor
    """`[N]` int64: the session's previous step; -1 before the first one."""

    @classmethod
    def of(cls, batch: CreditBatch) -> StepList:
        """Returns the steps of a batch whose `steps` are known."""
        assert batch.steps is not None
        steps = batch.steps
        row_N, column_N = ((steps.state_BK >= 0) & batch.valid_B.unsqueeze(-1)).nonzero(as_tuple=True)
        session_N, turn_N = batch.session_B[row_N], steps.first_turn_B[row_N] + column_N
        state_N, action_N = steps.state_BK[row_N, column_N], steps.action_BK[row_N, column_N]
        after_N, before_N = _find_neighbours(row_N, session_N=session_N, turn_N=turn_N, keys_N=(state_N, action_N))
        return cls(
            row_N=row_N,
            column_N=column_N,
            session_N=session_N,
            group_N=batch.group_B[row_N],
            turn_N=turn_N,
            state_N=state_N,
            action_N=action_N,
            after_N=after_N,
            before_N=before_N,
        )

    def to_turns(self, values_N: Tensor, *, steps: Steps, turns: Turns, otherwise_Bk: Tensor) -> Tensor:
        """Returns `[B, k]` float: step values for every turn of a row; `otherwise_Bk` for turns without a step."""
        shape = steps.state_BK.shape
        values_BK = torch.zeros(shape, dtype=values_N.dtype, device=values_N.device)
        has_BK = torch.zeros(shape, dtype=torch.bool, device=values_N.device)
        values_BK[self.row_N, self.column_N] = values_N
        has_BK[self.row_N, self.column_N] = True
        column_Bk = turns.id_BK - steps.first_turn_B.unsqueeze(-1)
        inside_Bk = column_Bk.clamp(0, shape[1] - 1)
        is_step_Bk = has_BK.gather(1, inside_Bk) & (column_Bk == inside_Bk) & turns.exists_BK
        return torch.where(is_step_Bk, values_BK.gather(1, inside_Bk), otherwise_Bk)


def at_steps(values_N: Tensor, step_N: Tensor, *, default: int) -> Tensor:
    """Returns `[N]`: the values at the given steps; the default for -1."""
    return torch.where(step_N >= 0, values_N[step_N.clamp(min=0)], default)


def _find_neighbours(
    row_N: Tensor, *, session_N: Tensor, turn_N: Tensor, keys_N: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Returns the next and the previous step of every step; steps are sorted by row.

    Args:
        row_N: `[N]` int64, not decreasing.
        turn_N: `[N]` int64, increasing within a row.
        keys_N: order rows that have the same turn, independently of their place in the batch.
    """
    place_N = torch.arange(len(row_N), device=row_N.device)
    when_N = joint_ids(session_N, turn_N)
    order_N = joint_ids(session_N, turn_N, *keys_N).argsort(stable=True)
    sorted_N = when_N[order_N].contiguous()

    def neighbour(step: int, found_N: Tensor) -> Tensor:
        in_row_N, in_session_N = (index_N.clamp(0, max(len(row_N) - 1, 0)) for index_N in (place_N + step, found_N))
        is_there_N = (in_session_N == found_N) & (session_N[order_N[in_session_N]] == session_N)
        other_N = torch.where(is_there_N, order_N[in_session_N], -1)
        return torch.where((in_row_N != place_N) & (row_N[in_row_N] == row_N), in_row_N, other_N)

    later_N = torch.searchsorted(sorted_N, when_N, right=True)
    earlier_N = torch.searchsorted(sorted_N, when_N) - 1
    return neighbour(1, later_N), neighbour(-1, earlier_N)
