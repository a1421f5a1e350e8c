"""The input and output of advantage estimators.

Axes: B training rows, T response tokens (padded at the right), S sessions (episodes, of one row or more), G groups (all
sessions of a prompt).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl_agentic.base.errors import DataError
from verl_agentic.credit.credit.group_statistics import group_lowest, resolution

_TOKENS_PER_THREAD = 2**19
_CLOSE = 0.01
"""Share of the largest outcome of a batch, or of 1. Siblings closer than this may differ only by rounding."""
_LARGEST = 1e30
"""Maximum absolute return. Larger ones are treated as not finite, because sums would overflow float32."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Hashes of the state and the action of each turn; K is the maximum number of turns of a row."""

    state_BK: Tensor
    """`[B, K]` int64: state in which turn `first_turn_B + k` began; -1 where the row has no such turn."""
    action_BK: Tensor
    """`[B, K]` int64: action of that turn; -1 where the row has no such turn."""
    first_turn_B: Tensor
    """`[B]` int64: turn id of column 0."""


@dataclass(frozen=True, kw_only=True)
class CreditBatch:
    """A checked batch of training rows: rewards are finite and lie on sampled tokens; void rows are marked.

    Make one with `CreditBatch.of`. Unknown columns are None; an estimator names the columns it needs in its decorator.
    """

    rewards_BT: Tensor
    """`[B, T]` float: rewards per token, 0 where the mask is 0."""
    mask_BT: Tensor
    """`[B, T]` bool: true on tokens that the policy sampled."""
    group_B: Tensor
    """`[B]` int64 in `[0, G)`."""
    session_B: Tensor
    """`[B]` int64 in `[0, S)`; a session belongs to one group."""
    valid_B: Tensor
    """`[B]` bool: false for void rows, padding, and rows with rewards that are not finite."""
    order_B: Tensor
    """`[B]` int64: place of the row in its session."""
    num_nonfinite: int = 0
    """Number of sessions marked invalid because a reward was NaN, infinite, or beyond 1e30."""

    turn_ids_BT: Tensor | None = None
    """`[B, T]` int64: turn of every token, not decreasing along a row; an observation belongs to the turn before it."""
    values_BT: Tensor | None = None
    """`[B, T]` float: the critic's values."""
    target_values_BT: Tensor | None = None
    """`[B, T]` float: values of the critic's target network."""
    old_log_probs_BT: Tensor | None = None
    """`[B, T]` float: log-probs under the policy that is about to be updated."""
    rollout_log_probs_BT: Tensor | None = None
    """`[B, T]` float: log-probs under the policy that sampled (behaviour policy)."""
    is_weights_BT: Tensor | None = None
    """`[B, T]` float: verl's rollout correction (importance weights between trainer and rollout)."""
    sum_pi_squared_BT: Tensor | None = None
    """`[B, T]` float: sum over the vocabulary of squared probabilities."""
    is_side_B: Tensor | None = None
    """`[B]` bool: rows of sub-agents, whose turn ids restart at 0; None: there are no such rows. See `chain`."""
    agents: Sequence[str] | None = None
    """`[B]` role of each row's agent; empty for the agent of the episode. None: there are no others."""
    steps: Steps | None = None
    source_B: Tensor | None = None
    """`[B]` int64: data source of the row's prompt."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Name -> `[B]` float: parts of the reward of the row's session."""
    baseline_B: Tensor | None = None
    """`[B]` float: outcome of the greedy session of the row's prompt."""
    shared_BT: Tensor | None = None
    """`[B, T]` int64: equal ids of sibling rows at the same place mark a shared prefix; -1 elsewhere."""
    text_B: Tensor | None = None
    """`[B]` int64: hash of the row's sampled tokens (`diversity.sequence_keys`)."""
    uses_B: Tensor | None = None
    """`[B]` int64: number of uses of the row's group (above 1 if it is replayed)."""
    is_padding_B: Tensor | None = None
    """`[B]` bool: rows that only fill the batch, whose groups and sessions have no other rows; None: there are none."""
    sizes_S: Tensor | None = None
    """`[S]` float64: sum of the absolute rewards of each session before scaling; None: not scaled."""

    @classmethod
    def of(
        cls,
        *,
        rewards: Tensor,
        mask: Tensor,
        groups: Sequence[Hashable],
        sessions: Sequence[Hashable] | None = None,
        order: Sequence[int] | None = None,
        **columns: Any,
    ) -> CreditBatch:
        """Returns a checked batch from the columns of a trainer.

        Args:
            rewards: `[B, T]` float, of any float type; computed in float32.
            mask: `[B, T]` 0 or 1.
            groups: `[B]` a key per row (verl's `uid`).
            sessions: `[B]` a key per row, unique over groups; None: one session per row.
            order: `[B]` place of the row in its session; required if a session has several rows.
            columns: the optional columns.

        Raises:
            DataError: shapes that do not fit, or a session in two groups.
        """
        _check_shapes(rewards, mask, groups, sessions)
        device, count = rewards.device, len(groups)
        group_B = _number_keys(groups, device)
        session_B = torch.arange(count, device=device) if sessions is None else _number_keys(sessions, device)
        order_B = torch.arange(count) if order is None else torch.as_tensor(order, dtype=torch.int64)
        order_B = order_B.to(device)
        mask_BT = mask.bool()
        batch = cls(
            rewards_BT=masked(rewards.float(), mask_BT),
            mask_BT=mask_BT,
            group_B=group_B,
            session_B=session_B,
            valid_B=_any_of_row(mask_BT),
            order_B=order_B,
            **columns,
        )
        if bool((batch.group_B != batch.group_S[batch.session_B]).any()):
            raise DataError("a session belongs to one group, got one with rows in two; make session keys unique")
        return batch._without_nonfinite()

    @cached_property
    def num_groups(self) -> int:
        """G."""
        return int(self.group_B.max()) + 1 if len(self.group_B) else 0

    @cached_property
    def num_sessions(self) -> int:
        """S."""
        return int(self.session_B.max()) + 1 if len(self.session_B) else 0

    @cached_property
    def group_S(self) -> Tensor:
        """`[S]` int64: group of every session."""
        group_S = torch.zeros(self.num_sessions, dtype=torch.int64, device=self.group_B.device)
        return group_S.scatter_(0, self.session_B, self.group_B)

    @cached_property
    def valid_S(self) -> Tensor:
        """`[S]` bool: sessions with at least one valid row."""
        return self.sum_per_session(self.valid_B.float()) > 0

    @cached_property
    def is_chained_B(self) -> Tensor:
        """`[B]` bool: valid rows of the session itself, in the order of `order_B`.

        Rows of sub-agents are excluded, unless the session has no other valid rows.
        """
        if self.is_side_B is None:
            return self.valid_B
        is_own_B = self.valid_B & ~self.is_side_B
        return is_own_B | (self.valid_B & (self.sum_per_session(is_own_B.long()) == 0)[self.session_B])

    def tokens_of(self, role: str) -> Tensor:
        """Returns `[B, T]` bool: sampled tokens of one role: `all`, `agent`, `sub_agents`, or one of `agents`."""
        if role == "all":
            return self.mask_BT
        is_side_B = torch.zeros_like(self.valid_B) if self.is_side_B is None else self.is_side_B
        if role not in ("agent", "sub_agents"):
            names = self.agents or [""] * len(is_side_B)
            return self.mask_BT & torch.tensor([name == role for name in names], device=is_side_B.device).unsqueeze(-1)
        return self.mask_BT & (is_side_B if role == "sub_agents" else ~is_side_B).unsqueeze(-1)

    def chain(self) -> CreditBatch:
        """Returns the batch as estimators see it: each session is a chain of its own rows.

        Rows of sub-agents are removed. Their rewards move to the token of the outcome.
        """
        is_beside_B = self.valid_B & ~self.is_chained_B
        if not bool(is_beside_B.any()):
            return self
        rewards_BT = self.rewards_BT.masked_fill(is_beside_B.unsqueeze(-1), 0.0)
        beside_S = self.sum_per_session(self.returns_B.masked_fill(~is_beside_B, 0.0))
        rows_N = last_valid_rows(self)
        rewards_BT[rows_N, last_tokens(self.mask_BT[rows_N])] += beside_S[self.session_B[rows_N]]
        return replace(
            self,
            rewards_BT=rewards_BT,
            mask_BT=self.mask_BT & ~is_beside_B.unsqueeze(-1),
            valid_B=self.is_chained_B,
            is_side_B=None,
        )

    @cached_property
    def returns_B(self) -> Tensor:
        """`[B]` float32: sum of a row's rewards; 0 for rows that are not valid."""
        return self.rewards_BT.sum(dim=-1)

    @cached_property
    def outcomes_S(self) -> Tensor:
        """`[S]` float32: sum of the rewards of each session over all of its rows; 0 for invalid sessions.

        If siblings differ by less than the rounding error of their sums, all get the lowest value.
        """
        earned_S = self.sum_per_session(self.returns_B.double()).float()
        among = {"group_N": self.group_S, "valid_N": self.valid_S, "num_groups": self.num_groups}
        lowest_S = group_lowest(earned_S, **among)
        spread_S = -group_lowest(-earned_S, **among) - lowest_S
        if not len(earned_S):
            return earned_S
        # Only these sessions need a pass over all tokens.
        is_close_S = (spread_S > 0) & (spread_S < _CLOSE * earned_S.abs().max().clamp(min=1.0))
        if not bool(is_close_S.any()):
            return earned_S
        sizes_S = self.reward_sizes(is_close_S) if self.sizes_S is None else self.sizes_S
        is_equal_S = is_close_S & (spread_S <= resolution(-group_lowest(-sizes_S, **among)))
        return torch.where(is_equal_S & self.valid_S, lowest_S.float(), earned_S)

    def reward_sizes(self, wanted_S: Tensor) -> Tensor:
        """Returns `[S]` float64: sums of absolute rewards of the wanted sessions; 0 for the others."""
        sizes_B = torch.zeros_like(self.returns_B, dtype=torch.float64)
        rows_N = wanted_S[self.session_B].nonzero().squeeze(-1)
        sizes_B[rows_N] = torch.linalg.vector_norm(self.rewards_BT[rows_N], ord=1, dim=-1, dtype=torch.float64)
        return self.sum_per_session(sizes_B)

    def sum_per_session(self, values_B: Tensor) -> Tensor:
        """Returns `[S]` sums of `[B]` values over the rows of every session."""
        sums_S = torch.zeros(self.num_sessions, dtype=values_B.dtype, device=values_B.device)
        return sums_S.index_add_(0, self.session_B, values_B)

    def per_session(self, column_B: Tensor) -> Tensor:
        """Returns `[S]` the column's value for each session; all rows of a session must have the same value."""
        column_S = torch.zeros(self.num_sessions, dtype=column_B.dtype, device=column_B.device)
        return column_S.index_copy_(0, self.session_B, column_B)

    def to_tokens(self, values_S: Tensor) -> Tensor:
        """Returns `[B, T]` float32: the value of its session on every sampled token of valid rows, 0 elsewhere."""
        values_S = values_S.float()
        values_B1 = values_S[self.session_B].masked_fill(~self.valid_B, 0.0).unsqueeze(-1)
        tokens_BT = torch.empty(self.mask_BT.shape, dtype=values_S.dtype, device=values_S.device)
        for rows in row_blocks(self.mask_BT):
            tokens_BT[rows].copy_(self.mask_BT[rows]).mul_(values_B1[rows])  # half the time of `torch.where`
        return tokens_BT

    def _without_nonfinite(self) -> CreditBatch:
        """Marks sessions with rewards that are not finite as invalid."""
        # A sum is finite only if all of its terms are finite. The comparison is also false for NaN.
        is_bad_S = self.sum_per_session((~(self.returns_B.abs() < _LARGEST)).float()) > 0
        is_bad_B = is_bad_S[self.session_B]
        if not bool(is_bad_S.any()):
            return self
        return replace(
            self,
            rewards_BT=torch.where(is_bad_B.unsqueeze(-1), 0.0, self.rewards_BT),
            valid_B=self.valid_B & ~is_bad_B,
            num_nonfinite=int(is_bad_S.sum()),
        )


@dataclass(frozen=True, kw_only=True)
class Advantages:
    """The result of an estimator."""

    advantages_BT: Tensor
    """`[B, T]` float: 0 where the mask is 0 and on void rows."""
    returns_BT: Tensor
    """`[B, T]` float: the critic's targets; without a critic, the same as the advantages."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    sessions_S: Tensor | None = None
    """`[S]` float: advantages of sub-agents' rows; None: the advantage of their session's first sampled token."""


def row_blocks(values_BT: Tensor) -> list[slice]:
    """Returns slices of rows that fit a CPU's cache; on other devices, one slice of all rows.

    Working in blocks avoids temporaries of the size of the batch; allocating them costs more than the arithmetic.
    """
    num_rows, num_tokens = values_BT.shape
    size = max(num_rows, 1)
    if values_BT.device.type == "cpu":
        size = max(_TOKENS_PER_THREAD * torch.get_num_threads() // max(num_tokens, 1), 1)
    return [slice(start, start + size) for start in range(0, num_rows, size)]


def masked(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B, T]` values with 0 where the mask is false; the input itself if nothing changes."""
    if not values_BT.numel() or not any(_any_outside(values_BT[b], mask_BT[b]) for b in row_blocks(values_BT)):
        return values_BT
    return torch.where(mask_BT, values_BT, torch.zeros((), dtype=values_BT.dtype, device=values_BT.device))


def last_valid_rows(batch: CreditBatch) -> Tensor:
    """Returns `[N]` the last valid own row of every valid session, where its outcome lies."""
    return _ends_of_chains(batch, reduce="amax")


def first_valid_rows(batch: CreditBatch) -> Tensor:
    """Returns `[N]` the first valid own row of every valid session."""
    return _ends_of_chains(batch, reduce="amin")


def _ends_of_chains(batch: CreditBatch, *, reduce: str) -> Tensor:
    none = -1 if reduce == "amax" else torch.iinfo(torch.int64).max
    order_B = torch.where(batch.is_chained_B, batch.order_B, none)
    end_S = torch.full((batch.num_sessions,), none, dtype=torch.int64, device=order_B.device)
    end_S = end_S.scatter_reduce(0, batch.session_B, order_B, reduce=reduce)
    return (batch.is_chained_B & (batch.order_B == end_S[batch.session_B])).nonzero().squeeze(-1)


def on_sampled_tokens(rewards_BT: Tensor, batch: CreditBatch) -> Tensor:
    """Moves rewards from tokens that were not sampled to sampled tokens; `[B, T]`.

    verl puts a score on the last token of a response, which may be an observation. Such rewards move to the last
    sampled token of their row, or of the last valid row of their session.

    Args:
        batch: the same rows; its rewards are not read.
    """
    stray_B = rewards_BT.masked_fill(batch.mask_BT, 0.0).sum(dim=-1)
    rewards_BT = rewards_BT.masked_fill(~batch.mask_BT, 0.0)
    place_B1 = last_tokens(batch.mask_BT).clamp(min=0).unsqueeze(-1)
    rewards_BT = rewards_BT.scatter_add(1, place_B1, stray_B.masked_fill(~batch.valid_B, 0.0).unsqueeze(-1))
    homeless_S = batch.sum_per_session(stray_B.masked_fill(batch.valid_B, 0.0))
    rows_N = last_valid_rows(batch)
    rewards_BT[rows_N, last_tokens(batch.mask_BT[rows_N])] += homeless_S[batch.session_B[rows_N]]
    return rewards_BT


def last_tokens(mask_NT: Tensor) -> Tensor:
    """Returns `[N]` the position of the last sampled token; -1 if there is no such token."""
    positions_T = torch.arange(mask_NT.shape[1], device=mask_NT.device)
    return torch.where(mask_NT, positions_T, -1).amax(dim=1) if mask_NT.numel() else positions_T[:0]


def first_tokens(mask_NT: Tensor) -> Tensor:
    """Returns `[N]` the position of the first sampled token; T if there is no such token."""
    positions_T = torch.arange(mask_NT.shape[1], device=mask_NT.device)
    return torch.where(mask_NT, positions_T, mask_NT.shape[1]).amin(dim=1) if mask_NT.numel() else positions_T[:0]


def _any_outside(values_BT: Tensor, mask_BT: Tensor) -> bool:
    # Reductions of booleans are many times slower on a CPU than reductions of bytes.
    return bool((values_BT.bool() > mask_BT).view(torch.uint8).amax())


def _any_of_row(mask_BT: Tensor) -> Tensor:
    return mask_BT.view(torch.uint8).amax(dim=-1).bool() if mask_BT.numel() else mask_BT.any(dim=-1)


def _check_shapes(rewards: Tensor, mask: Tensor, groups: Sequence[Any], sessions: Sequence[Any] | None) -> None:
    if rewards.ndim != 2 or mask.shape != rewards.shape or len(groups) != len(rewards):
        raise DataError(
            "rewards and mask must be [B, T] and groups [B], got "
            f"{tuple(rewards.shape)}, {tuple(mask.shape)} and {len(groups)}"
        )
    if sessions is not None and len(sessions) != len(groups):
        raise DataError(f"sessions must be [B], got {len(sessions)} for {len(groups)} rows")


def _number_keys(keys: Sequence[Hashable], device: torch.device) -> Tensor:
    """Returns `[B]` numbers of keys, in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor(np.fromiter((numbers.setdefault(k, len(numbers)) for k in keys), dtype=np.int64), device=device)
