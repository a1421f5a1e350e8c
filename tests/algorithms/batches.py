"""Batches for tests of credit: hand-made ones, and any ones for properties.

Axes as in `verl_agentic.credit.credit.batch`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, cast

import torch
from hypothesis import strategies as st

from verl_agentic.credit.credit.batch import CreditBatch, Steps

Tensor = torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Columns of a batch in a trainer, before it is a `CreditBatch`."""

    rewards: Tensor
    mask: Tensor
    groups: list[Hashable]
    sessions: list[Hashable]
    order: list[int]
    columns: Mapping[str, Any] = field(default_factory=dict)

    def batch(self) -> CreditBatch:
        return CreditBatch.of(
            rewards=self.rewards,
            mask=self.mask,
            groups=self.groups,
            sessions=self.sessions,
            order=self.order,
            **self.columns,
        )

    def permuted(self, places: Sequence[int]) -> Rows:
        """Returns rows of these: row i is what row `places[i]` was."""
        rows = list(places)
        return Rows(
            rewards=self.rewards[rows],
            mask=self.mask[rows],
            groups=[self.groups[i] for i in rows],
            sessions=[self.sessions[i] for i in rows],
            order=[self.order[i] for i in rows],
            columns={name: _mapped(column, lambda part: part[rows]) for name, column in self.columns.items()},
        )

    def to(self, device: str) -> Rows:
        """Returns the same rows on another device."""
        return replace(
            self,
            rewards=self.rewards.to(device),
            mask=self.mask.to(device),
            columns={name: _mapped(column, lambda part: part.to(device)) for name, column in self.columns.items()},
        )

    def with_garbage(self) -> Rows:
        """Returns the same rows with NaN, infinities and huge numbers wherever the mask is 0."""
        return replace(
            self,
            rewards=_garbage(self.rewards, self.mask),
            columns={
                name: _garbage(column, self.mask) if name.endswith("_BT") else column
                for name, column in self.columns.items()
            },
        )


def make_batch(
    outcomes: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    sessions: Sequence[Hashable] | None = None,
    order: Sequence[int] | None = None,
    tokens: int = 3,
    mask: Tensor | None = None,
    void: Iterable[int] = (),
    dtype: torch.dtype = torch.float32,
    **known: Any,
) -> CreditBatch:
    """Returns a batch in which the outcome of every row lies on its last sampled token.

    Args:
        outcomes: `[B]` what each row earns.
        groups: `[B]`; None: all rows are of one group.
        sessions: `[B]`; None: every row is a session.
        order: `[B]` place of the row in its session.
        tokens: T.
        mask: `[B, T]`; None: every token is sampled.
        void: rows whose mask is 0 everywhere; their outcome lies on the last token.
        dtype: of the rewards.
        known: optional columns of `CreditBatch`.
    """
    mask = torch.ones(len(outcomes), tokens, dtype=torch.int64) if mask is None else mask.clone()
    mask[list(void)] = 0
    return CreditBatch.of(
        rewards=on_last_token(outcomes, mask).to(dtype),
        mask=mask,
        groups=["group"] * len(outcomes) if groups is None else groups,
        sessions=sessions,
        order=order,
        **known,
    )


def on_last_token(outcomes: Sequence[float], mask: Tensor) -> Tensor:
    """Returns `[B, T]` rewards: each row's outcome on its last sampled token, or its last if it has none."""
    places = torch.where(mask.bool(), torch.arange(mask.shape[1]), -1).amax(dim=1) % mask.shape[1]
    rewards = torch.zeros(mask.shape)
    rewards[torch.arange(len(mask)), places] = torch.tensor(outcomes, dtype=torch.float32)
    return rewards


def per_row(advantages_BT: Tensor, mask_BT: Tensor) -> list[float]:
    """Returns `[B]` the advantage of each row, the same on all of its sampled tokens and 0 elsewhere; 0 for none."""
    values_B = torch.where(mask_BT.bool(), advantages_BT, -math.inf).amax(dim=1)
    values_B = torch.where(mask_BT.any(dim=1), values_B, 0.0)
    assert torch.equal(advantages_BT, values_B.unsqueeze(-1) * mask_BT)
    return values_B.tolist()


def turns_of(mask: Tensor, session_B: Tensor) -> Tensor:
    """Returns `[B, T]` turn ids: a turn begins with every run of sampled tokens; rows of a session go on counting."""
    before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], dim=1)
    begun = (mask.bool() & ~before.bool()).long().cumsum(dim=1)
    return (begun - 1).clamp(min=0) + _turns_before(begun[:, -1], session_B).unsqueeze(-1)


def _turns_before(turns_B: Tensor, session_B: Tensor) -> Tensor:
    is_earlier_BB = (session_B == session_B.unsqueeze(-1)).tril(diagonal=-1)
    return (is_earlier_BB * turns_B).sum(dim=1)


def _steps(mask: Tensor, session_B: Tensor, generator: torch.Generator) -> Steps:
    """Few states and actions, so that they meet; a row has as many as it has turns."""
    turn_ids = turns_of(mask, session_B)
    first_turn_B = turn_ids[:, 0]
    turns_B = torch.where(mask.bool(), turn_ids - first_turn_B.unsqueeze(-1), -1).amax(dim=1) + 1
    shape = (len(mask), max(int(turns_B.max()), 1))
    exists = torch.arange(shape[1]) < turns_B.unsqueeze(-1)
    return Steps(
        state_BK=torch.where(exists, torch.randint(0, 3, shape, generator=generator), -1),
        action_BK=torch.where(exists, torch.randint(0, 3, shape, generator=generator), -1),
        first_turn_B=first_turn_B,
    )


def _per_session(session_B: Tensor, generator: torch.Generator, *, choices: int) -> Tensor:
    return torch.randint(0, choices, (len(session_B),), generator=generator)[session_B].float()


def _normal(mask: Tensor, session_B: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(mask.shape, generator=generator)


def _log_probs(mask: Tensor, session_B: Tensor, generator: torch.Generator) -> Tensor:
    return -torch.rand(mask.shape, generator=generator) * 3


COLUMNS: dict[str, Callable[[Tensor, Tensor, torch.Generator], Any]] = {
    "turn_ids_BT": lambda mask, session_B, generator: turns_of(mask, session_B),
    "values_BT": _normal,
    "target_values_BT": _normal,
    "old_log_probs_BT": _log_probs,
    "rollout_log_probs_BT": _log_probs,
    "is_weights_BT": lambda mask, session_B, generator: torch.rand(mask.shape, generator=generator),
    "sum_pi_squared_BT": lambda mask, session_B, generator: torch.rand(mask.shape, generator=generator),
    "steps": _steps,
    "source_B": lambda mask, session_B, generator: _per_session(session_B, generator, choices=2).long(),
    "parts": lambda mask, session_B, generator: {
        "acc": _per_session(session_B, generator, choices=2),
        "format": _per_session(session_B, generator, choices=11) / 10,
    },
    "baseline_B": lambda mask, session_B, generator: _per_session(session_B, generator, choices=11) / 10,
    "shared_BT": lambda mask, session_B, generator: torch.full(mask.shape, -1),
    "text_B": lambda mask, session_B, generator: torch.randint(0, 3, (len(mask),), generator=generator),
    "uses_B": lambda mask, session_B, generator: torch.ones(len(mask), dtype=torch.int64),
}
"""A value of every optional column of `CreditBatch`: mask `[B, T]`, session_B `[B]` in `[0, B)`, random numbers."""

OPTIONS: dict[str, dict[str, Any]] = {}
"""Options without which an estimator cannot run, by its name."""


@st.composite
def any_rows(
    draw: st.DrawFn,
    *,
    needs: Iterable[str] = (),
    several_rows: bool = True,
    void: bool = True,
    dense: bool = False,
) -> Rows:
    """Returns batches of up to 3 groups of up to 5 sessions of up to 3 rows of up to 7 tokens.

    Args:
        draw: of hypothesis.
        needs: optional columns that they have.
        several_rows: sessions may have several.
        void: rows may have no sampled token.
        dense: rewards lie on any sampled token, else one outcome on the last of the session's last row.
    """
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    keys = [
        (group, f"{group}/{session}", row)
        for group, size in enumerate(sizes)
        for session in range(size)
        for row in range(draw(st.integers(1, 3)) if several_rows else 1)
    ]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    mask = (torch.rand(len(keys), draw(st.integers(1, 7)), generator=generator) < 0.6).long()
    is_void = (torch.rand(len(keys), generator=generator) < 0.2) & void
    # A row that is not void has at least one sampled token.
    mask[:, -1] |= (mask.sum(dim=1) == 0).long()
    mask[is_void] = 0
    sessions = [session for _, session, _ in keys]
    order = [row for _, _, row in keys]
    numbers: dict[str, int] = {}
    session_B = torch.tensor([numbers.setdefault(session, len(numbers)) for session in sessions])
    drawn = torch.randint(-10, 11, mask.shape, generator=generator) / 8
    if dense:
        rewards = drawn * mask
    else:
        is_last = [i + 1 == len(keys) or sessions[i + 1] != sessions[i] for i in range(len(keys))]
        rewards = on_last_token((drawn[:, 0] * torch.tensor(is_last)).tolist(), mask)
    return Rows(
        rewards=rewards,
        mask=mask,
        groups=[group for group, _, _ in keys],
        sessions=list(sessions),
        order=order,
        columns={name: COLUMNS[name](mask, session_B, generator) for name in sorted(needs)},
    )


def _mapped(column: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Returns a column, or what it consists of, with a function applied."""
    if isinstance(column, Mapping):
        return {name: function(part) for name, part in column.items()}
    if is_dataclass(column) and not isinstance(column, type):
        return type(column)(**{f.name: function(getattr(column, f.name)) for f in fields(column)})
    return function(cast("Tensor", column))


def _garbage(column: Tensor, mask: Tensor) -> Tensor:
    if not column.is_floating_point():
        return column
    kinds = torch.tensor([math.nan, math.inf, -math.inf, 1e30], dtype=column.dtype)
    return torch.where(mask.bool(), column, kinds[torch.arange(column.numel()).reshape(column.shape) % len(kinds)])
