"""The new tokens of a step, laid out for a forward pass over slots of the cache.

Axes: B rows, T new tokens of a row with padding, N new tokens of all rows, L positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.cpu.inference.kv_cache import CacheShape

_CHUNK_ROWS = 16
"""Of a CPU. An accelerator attends for all rows at once, because it waits for launches rather than for memory."""
_MIN_GAIN = 1.1
"""Positions of a batch in one piece over those in chunks, from which on chunks are worth their calls."""
REACH_STEP = 16
"""Of an accelerator, whose kernels copy a mask of any other length. Slots have a multiple of it."""


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

    def of_tokens(self, x_BT: Tensor) -> Tensor:
        """Returns the values `[N, ...]` of the real tokens, of values `[B, T, ...]`."""
        return x_BT[:, 0] if self.tokens is None else x_BT[self.tokens]

    def pad_tokens(self, x_N: Tensor) -> Tensor:
        """Returns values `[B, T, ...]`, 0 for padding, of those of the real tokens `[N, ...]`."""
        if self.tokens is None:
            return x_N[:, None]
        x_BT = x_N.new_zeros(*self.ids_BT.shape, *x_N.shape[1:])
        x_BT[self.tokens] = x_N
        return x_BT


def make_span(pieces: Sequence[Sequence[int]], past: Sequence[int], *, start: int, shape: CacheShape) -> SlotSpan:
    """Returns the span of rows whose slots already hold `past` tokens each.

    Args:
        pieces: the new ids of every row, at least one each.
        past: tokens that the rows' slots hold.
        start: slot of the first row.
        shape: of the cache: device and type.
    """
    device = shape.device
    width = max(map(len, pieces))
    reach = max(before + len(piece) for before, piece in zip(past, pieces, strict=True))
    if device.type != "cpu":
        reach = -(-reach // REACH_STEP) * REACH_STEP
    if width == 1:
        ids_B, past_B = torch.tensor([[piece[0] for piece in pieces], list(past)], device=device)
        chunks = attention_chunks([before + 1 for before in past], shape=shape)
        return make_decode_span(ids_B, past_B, start=start, reach=reach, chunks=chunks, shape=shape)
    ids_BT = torch.tensor([[*piece, *[0] * (width - len(piece))] for piece in pieces], device=device)
    lengths = [len(piece) for piece in pieces]
    # The real tokens are listed here: a device would be read to find them.
    real_2N = torch.tensor(
        [[row, column] for row, length in enumerate(lengths) for column in range(length)], device=device
    ).T
    past_B, lengths_B = torch.tensor([list(past), lengths], device=device)
    columns_T = torch.arange(width, device=device)
    # Padding attends to its row's first position, and no token attends to it.
    positions_BT = torch.where(columns_T < lengths_B[:, None], past_B[:, None] + columns_T, 0)
    rows_N, columns_N = real_2N
    return SlotSpan(
        ids_BT=ids_BT,
        positions_BT=positions_BT,
        mask_B1TL=_make_mask(positions_BT, reach, shape),
        tokens=(rows_N, columns_N),
        places=(rows_N + start, positions_BT[rows_N, columns_N]),
        start=start,
        last_B=lengths_B - 1,
        chunks=((0, len(pieces), reach),),
    )


def make_decode_span(
    ids_B: Tensor,
    past_B: Tensor,
    *,
    start: int,
    reach: int,
    chunks: tuple[tuple[int, int, int], ...],
    shape: CacheShape,
) -> SlotSpan:
    """Returns the span of one token per row; its operations depend on no value of the tensors.

    Args:
        ids_B: the new ids.
        past_B: tokens that the rows' slots hold.
        start: slot of the first row.
        reach: number of positions that the longest row attends to, or more.
        chunks: rows that attend together.
        shape: of the cache.
    """
    rows_B = torch.arange(ids_B.shape[0], device=shape.device)
    return SlotSpan(
        ids_BT=ids_B[:, None],
        positions_BT=past_B[:, None],
        mask_B1TL=_make_mask(past_B[:, None], reach, shape),
        tokens=None,
        places=(rows_B + start, past_B),
        start=start,
        last_B=torch.zeros_like(rows_B),
        chunks=chunks,
    )


def attention_chunks(reaches: Sequence[int], *, shape: CacheShape) -> tuple[tuple[int, int, int], ...]:
    """Returns chunks of rows, each with its first row, its end and its longest reach."""
    whole = (0, len(reaches), max(reaches))
    if shape.device.type != "cpu":
        return (whole,)
    ends = [*range(_CHUNK_ROWS, len(reaches), _CHUNK_ROWS), len(reaches)]
    bounds = zip([0, *ends], ends, strict=False)
    chunks = tuple((begin, end, max(reaches[begin:end])) for begin, end in bounds)
    is_worth = _MIN_GAIN * count_attended(chunks) < count_attended([whole])
    return chunks if is_worth else (whole,)


def count_attended(chunks: Iterable[tuple[int, int, int]]) -> int:
    """Returns the number of positions that all rows of the chunks read."""
    return sum((end - begin) * reach for begin, end, reach in chunks)


def _make_mask(positions_BT: Tensor, reach: int, shape: CacheShape) -> Tensor:
    """Returns the additive mask `[B, 1, T, L]` that hides the positions after each token."""
    is_hidden_BTL = torch.arange(reach, device=shape.device) > positions_BT[:, :, None]
    mask_BTL = torch.zeros(is_hidden_BTL.shape, dtype=shape.dtype, device=shape.device)
    return mask_BTL.masked_fill_(is_hidden_BTL, -torch.inf)[:, None]
