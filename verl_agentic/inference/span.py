"""The new tokens of a step, laid out for a forward pass over slots of the cache.

Axes: B rows, T new tokens, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.inference.kv_cache import CacheShape

_CHUNK_ROWS = 16


@dataclass(frozen=True)
class SlotSpan:
    """The new tokens of the rows in slots `start` to `start + B`."""

    ids_BT: Tensor
    """Padded on the right."""
    positions_BT: Tensor
    mask_B1TL: Tensor
    """Additive: 0 where a token may attend, -inf elsewhere; L positions of the slots."""
    tokens: tuple[Tensor, Tensor] | None
    """Row and column of every token except padding; None if every row has exactly one token."""
    places: tuple[Tensor, Tensor]
    """Slot and position of these tokens."""
    start: int
    last_B: Tensor
    """Column of the last real token of every row."""
    chunks: tuple[tuple[int, int, int], ...]
    """First row, end and number of positions of rows that attend together: short rows do not read a long row's slot."""

    def of_tokens(self, x_BKTD: Tensor) -> Tensor:
        """Returns the values of the real tokens."""
        return x_BKTD[:, :, 0] if self.tokens is None else x_BKTD[self.tokens[0], :, self.tokens[1]]


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
    past_B1 = torch.tensor(past, device=device)[:, None]
    reach = max(before + len(piece) for before, piece in zip(past, pieces, strict=True))
    rows_B = torch.arange(len(pieces), device=device)
    if width == 1:
        positions_BT, tokens, last_B = past_B1, None, torch.zeros_like(rows_B)
        places = rows_B + start, past_B1[:, 0]
        chunks = attention_chunks([before + 1 for before in past])
    else:
        lengths_B = torch.tensor([len(piece) for piece in pieces], device=device)
        columns_T = torch.arange(width, device=device)
        is_real_BT = columns_T < lengths_B[:, None]
        # Padding attends to its row's first position, and no token attends to it.
        positions_BT = torch.where(is_real_BT, past_B1 + columns_T, 0)
        rows, columns = torch.nonzero(is_real_BT, as_tuple=True)
        tokens = rows, columns
        last_B, places = lengths_B - 1, (rows + start, positions_BT[rows, columns])
        chunks = ((0, len(pieces), reach),)
    hidden_BTL = torch.arange(reach, device=device) > positions_BT[:, :, None]
    mask_BTL = torch.zeros(hidden_BTL.shape, dtype=shape.dtype, device=device).masked_fill_(hidden_BTL, -torch.inf)
    return SlotSpan(
        ids_BT=torch.tensor([piece + [0] * (width - len(piece)) for piece in pieces], device=device),
        positions_BT=positions_BT,
        mask_B1TL=mask_BTL[:, None],
        tokens=tokens,
        places=places,
        start=start,
        last_B=last_B,
        chunks=chunks,
    )


def attention_chunks(reaches: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Returns chunks of rows, each with its first row, its end and its longest reach."""
    ends = [*range(_CHUNK_ROWS, len(reaches), _CHUNK_ROWS), len(reaches)]
    return tuple((begin, end, max(reaches[begin:end])) for begin, end in zip([0, *ends], ends, strict=False))
