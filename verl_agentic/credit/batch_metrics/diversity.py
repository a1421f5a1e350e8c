"""Diversity of the sessions of a group: in sampled tokens and in actions.

Sequences are compared by 64-bit hashes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch, row_blocks

_MIX = (-0x61C8864680B583EB, -0x4B47D0C5A1A6D195)
_SEED = 31


def sequence_keys(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B]` int64: equal for rows whose masked-in values are equal and in the same order.

    Values between them and padding do not count.

    Args:
        values_BT: `[B, T]` int64, such as token ids; anything where the mask is 0.
    """
    weights_T = _draw_weights(max(values_BT.shape[-1], 1), values_BT.device)
    keys_B = torch.zeros(len(values_BT), dtype=torch.int64, device=values_BT.device)
    for rows in row_blocks(values_BT):
        rank_BT = (mask_BT[rows].long().cumsum(dim=-1) - 1).clamp(min=0)
        terms_BT = _mix_bits(values_BT[rows]) * weights_T[rank_BT]
        keys_B[rows] = _mix_bits(terms_BT.masked_fill(~mask_BT[rows], 0).sum(dim=-1))
    return keys_B


def diversity(batch: CreditBatch) -> dict[str, float]:
    """Returns the share of siblings that differ: 0 if all sessions of a group are equal, 1 if all differ.

    It is `(d - 1) / (n - 1)` for d distinct sessions of n, averaged over the groups with two or more valid sessions of
    the policy. External sessions (part `external`) do not count. NaN if there is no such group.

    - `distinct_share`: by all sampled tokens; needs `text_B`.
    - `distinct_action_share`: by the actions of the agent's own turns; needs `steps`.
    """
    metrics: dict[str, float] = {}
    if batch.text_B is not None:
        weights_B = _draw_weights(len(batch.text_B), batch.text_B.device)[_place_in_session(batch)]
        metrics["distinct_share"] = _distinct_share(batch, batch.text_B * weights_B * batch.valid_B)
    if batch.steps is not None:
        metrics["distinct_action_share"] = _distinct_share(batch, _action_keys(batch))
    return metrics


def _place_in_session(batch: CreditBatch) -> Tensor:
    """Returns `[B]` int64: the number of earlier valid rows of the session."""
    sorted_B = batch.order_B.argsort(stable=True)
    sorted_B = sorted_B[batch.session_B[sorted_B].argsort(stable=True)]
    before_B = batch.valid_B[sorted_B].long().cumsum(dim=0) - batch.valid_B[sorted_B].long()
    place_B = torch.empty_like(before_B).index_copy_(0, sorted_B, before_B)
    first_S = torch.full((batch.num_sessions,), len(place_B), device=place_B.device)
    return place_B - first_S.scatter_reduce(0, batch.session_B, place_B, reduce="amin")[batch.session_B]


def _action_keys(batch: CreditBatch) -> Tensor:
    """Returns `[B]` int64: the terms of each row in the key of its session."""
    assert batch.steps is not None
    action_BK, first_B1 = batch.steps.action_BK, batch.steps.first_turn_B.unsqueeze(-1)
    turn_BK = first_B1 + torch.arange(action_BK.shape[1], device=action_BK.device)
    weights_K = _draw_weights(int(turn_BK.max()) + 1 if turn_BK.numel() else 1, action_BK.device)
    counts_BK = (action_BK >= 0) & batch.valid_B.unsqueeze(-1)
    return (_mix_bits(action_BK) * weights_K[turn_BK]).masked_fill(~counts_BK, 0).sum(dim=-1)


def _distinct_share(batch: CreditBatch, keys_B: Tensor) -> float:
    keys_S, valid_S = batch.sum_per_session(keys_B), batch.valid_S
    if "external" in batch.parts:
        valid_S = valid_S & ~(batch.per_session(batch.parts["external"].to(valid_S.device)) > 0)
    pairs_N2 = torch.stack([batch.group_S, keys_S], dim=1)[valid_S]
    counts_G = pairs_N2[:, 0].bincount(minlength=batch.num_groups)
    distinct_G = torch.unique(pairs_N2, dim=0)[:, 0].bincount(minlength=batch.num_groups)
    has_siblings_G = counts_G > 1
    shares_G = (distinct_G - 1).double() / (counts_G - 1).clamp(min=1)
    return float(shares_G[has_siblings_G].mean()) if bool(has_siblings_G.any()) else math.nan


def _draw_weights(count: int, device: torch.device) -> Tensor:
    """Returns `[count]` odd numbers, the same in every process."""
    generator = torch.Generator().manual_seed(_SEED)
    return (torch.randint(-(2**62), 2**62, (count,), generator=generator) * 2 + 1).to(device)


def _mix_bits(values: Tensor) -> Tensor:
    """Returns int64 numbers in which every bit of a value counts; products wrap around."""
    # The value 0 must count, too.
    values = (values.long() + 1) * _MIX[0]
    values = (values ^ (values >> 29)) * _MIX[1]
    return values ^ (values >> 32)
