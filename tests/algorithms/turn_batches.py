"""Batches of sessions that are written turn by turn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any
from zlib import crc32

import torch

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.step_groups import steps_of

Tensor = torch.Tensor


def turn_batch(
    rows: Sequence[Sequence[float]],
    *,
    states: Sequence[Sequence[str]] | None = None,
    actions: Sequence[Sequence[str]] | None = None,
    groups: Sequence[Hashable] | None = None,
    sessions: Sequence[Hashable] | None = None,
    first_turns: Sequence[int] | None = None,
    void: Iterable[int] = (),
    **known: Any,
) -> CreditBatch:
    """Returns a batch of rows, of which each turn is two sampled tokens, the second paid, and one of an observation.

    Args:
        rows: the reward of every turn of every row.
        states: name of what every turn started from; None: there are no steps.
        actions: name of what every turn did; None: no two did the same.
        groups: `[B]`; None: all rows are of one group.
        sessions: `[B]`; None: every row is a session.
        first_turns: `[B]` turn id of the first turn of a row; None: 0.
        void: rows without a sampled token.
        known: optional columns of `CreditBatch`.
    """
    first_turns = first_turns or [0] * len(rows)
    shape = (len(rows), 3 * max(map(len, rows)))
    rewards, mask = torch.zeros(shape), torch.zeros(shape, dtype=torch.int64)
    turn_ids = torch.zeros(shape, dtype=torch.int64)
    for b, row in enumerate(rows):
        for k, reward in enumerate(row):
            rewards[b, 3 * k + 1] = reward
            mask[b, 3 * k : 3 * k + 2] = 0 if b in set(void) else 1
            turn_ids[b, 3 * k :] = first_turns[b] + k
    if states is not None:
        did = actions or [[f"{b}/{k}" for k in range(len(row))] for b, row in enumerate(rows)]
        known["steps"] = steps_of(
            [
                [(first_turns[b] + k, key(s), key(a)) for k, (s, a) in enumerate(zip(states[b], did[b], strict=True))]
                for b in range(len(rows))
            ]
        )
    return CreditBatch.of(
        rewards=rewards,
        mask=mask,
        groups=["group"] * len(rows) if groups is None else groups,
        sessions=sessions,
        order=first_turns,
        turn_ids_BT=turn_ids,
        **known,
    )


def key(name: str) -> int:
    """Returns the key of a state or an action of that name."""
    return crc32(name.encode())


def per_turn(advantages_BT: Tensor, batch: CreditBatch) -> list[list[float]]:
    """Returns the advantage of every turn of every row; the same on all of its sampled tokens and 0 elsewhere."""
    assert torch.equal(advantages_BT, advantages_BT * batch.mask_BT)
    assert torch.equal(advantages_BT[:, 0::3], advantages_BT[:, 1::3])
    lengths = batch.mask_BT[:, 0::3].sum(dim=1).tolist()
    return [row[:length] for row, length in zip(advantages_BT[:, 0::3].tolist(), lengths, strict=True)]
