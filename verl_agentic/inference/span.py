"""The new tokens of a step, laid out for a forward pass over slots of the cache.

Axes: B rows, T new tokens, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.inference.kv_cache import CacheShape


@dataclass(frozen=True)
class SlotSpan:
    """The new tokens of the rows in slots `start` to `start + B`."""

    ids_BT: Tensor
    """Padded on the right."""
    positions_BT: Tensor
    mask_B1TL: Tensor
    """Additive: 0 where a token may attend, -inf elsewhere; L positions of the slots."""
    tokens: tuple[Tensor, Tensor]
    """Row and column of every token except padding."""
    start: int
    last_B: Tensor
    """Column of the last real token of every row."""


def make_span(pieces: Sequence[list[int]], past: Sequence[int], *, start: int, shape: CacheShape) -> SlotSpan:
    """Returns the span of rows whose slots already hold `past` tokens each.

    Args:
        pieces: the new ids of every row, at least one each.
        past: tokens that the rows' slots hold.
        start: slot of the first row.
        shape: of the cache: device and type.
    """
    device = shape.device
    width = max(map(len, pieces))
    lengths_B = torch.tensor([len(piece) for piece in pieces], device=device)
    past_B1 = torch.tensor(past, device=device)[:, None]
    columns_T = torch.arange(width, device=device)
    is_real_BT = columns_T < lengths_B[:, None]
    # Padding attends to its row's first position, and no token attends to it.
    positions_BT = torch.where(is_real_BT, past_B1 + columns_T, 0)
    reach = max(before + len(piece) for before, piece in zip(past, pieces, strict=True))
    can_see_BTL = torch.arange(reach, device=device) <= positions_BT[:, :, None]
    mask_BTL = torch.zeros(can_see_BTL.shape, dtype=shape.dtype, device=device).masked_fill_(~can_see_BTL, -torch.inf)
    rows, columns = torch.nonzero(is_real_BT, as_tuple=True)
    return SlotSpan(
        ids_BT=torch.tensor([piece + [0] * (width - len(piece)) for piece in pieces], device=device),
        positions_BT=positions_BT,
        mask_B1TL=mask_BTL[:, None],
        tokens=(rows, columns),
        start=start,
        last_B=lengths_B - 1,
    )
