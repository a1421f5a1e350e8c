"""The decoding requests as arrays by slot, so that a step has no Python code for each row.

Axes: B rows, V ids of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl_agentic.cpu.inference.request import Running

_DRAWN_AHEAD = 32  # random numbers of a row with a seed
_NO_ID = -1


@dataclass(frozen=True)
class SamplingRows:
    """Sampling parameters and one uniform number of every row of a batch."""

    temperature_B: np.ndarray
    top_k_B: np.ndarray
    """The size of the vocabulary where all ids are kept."""
    top_p_B: np.ndarray
    penalty_B: np.ndarray
    is_shaped_B: np.ndarray
    """True if a row samples from another distribution than that of its logits."""
    uniform_B: np.ndarray
    seen_BV: Tensor | None
    """Ids of the prompt and the response; None if no row has a repetition penalty."""
    allowed_BV: Tensor | None
    """None if every row may sample all ids."""

    def __getitem__(self, rows: slice) -> SamplingRows:
        """Returns a part of the rows."""
        return replace(self, **{name: x[rows] for name, x in vars(self).items() if x is not None})


class DecodeRows:
    """Requests in slots `0 .. count`; every array has one entry per slot."""

    def __init__(self, capacity: int, *, vocab_size: int, device: torch.device, seed: int) -> None:
        self.count = 0
        self._vocab_size, self._device = vocab_size, device
        self._generator = torch.Generator().manual_seed(seed)
        self.requests = np.full(capacity, None, dtype=object)
        self.computed = np.zeros(capacity, dtype=np.int64)
        """Number of tokens whose keys and values are in the slot."""
        self.last_ids = np.zeros(capacity, dtype=np.int64)
        self.stop_keys = np.zeros(capacity, dtype=np.int64)
        self._num_new = np.zeros(capacity, dtype=np.int64)
        self._max_new = np.zeros(capacity, dtype=np.int64)
        self._end_ids = np.full((capacity, 1), _NO_ID, dtype=np.int64)
        self._new_ids = np.zeros((capacity, 64), dtype=np.int64)
        self._log_probs = np.zeros((capacity, 64))
        self._temperature = np.ones(capacity)
        self._top_k = np.full(capacity, vocab_size, dtype=np.int64)
        self._top_p, self._penalty = np.ones(capacity), np.ones(capacity)
        self._is_restricted = np.zeros(capacity, dtype=bool)
        self._generators = np.full(capacity, None, dtype=object)
        self._uniforms = np.zeros((capacity, _DRAWN_AHEAD))
        self._num_drawn = np.full(capacity, _NO_ID, dtype=np.int64)  # of a row without a seed
        self._seen: Tensor | None = None
        self._allowed: Tensor | None = None

    def add(self, request: Running, *, stop_key: int) -> None:
        """Takes a request whose prompt is computed into the next slot."""
        slot, params = self.count, request.params
        self.count += 1
        self.requests[slot], self.computed[slot], self.stop_keys[slot] = request, request.computed, stop_key
        self._num_new[slot], self._max_new[slot] = 0, request.max_tokens
        self._end_ids = _widen_columns(self._end_ids, len(request.stop_ids), fill=_NO_ID)
        self._end_ids[slot] = _NO_ID
        self._end_ids[slot, : len(request.stop_ids)] = list(request.stop_ids)
        self._temperature[slot], self._top_p[slot] = params.temperature, params.top_p
        self._top_k[slot] = params.top_k if 0 < params.top_k < self._vocab_size else self._vocab_size
        self._penalty[slot] = params.repetition_penalty
        self._is_restricted[slot] = bool(params.allowed_token_ids)
        self._generators[slot] = request.generator
        self._num_drawn[slot] = _NO_ID if request.generator is None else _DRAWN_AHEAD
        if params.repetition_penalty != 1.0:
            self._seen = self._mask_ids(self._seen, slot, request.prompt_ids, fill=False)
        if params.allowed_token_ids:
            self._allowed = self._mask_ids(self._allowed, slot, params.allowed_token_ids, fill=True)
        elif self._allowed is not None:
            self._allowed[slot] = True

    def append(self, rows: slice, ids_B: np.ndarray, log_probs_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Appends a sampled token to each row.

        Returns:
            Two masks over the rows: the token is one of the row's end ids; the row has all its tokens.
        """
        slots = np.arange(rows.start, rows.stop)
        columns = self._num_new[rows]
        self._new_ids = _widen_columns(self._new_ids, int(columns.max()) + 1, fill=0)
        self._log_probs = _widen_columns(self._log_probs, int(columns.max()) + 1, fill=0)
        self._new_ids[slots, columns], self._log_probs[slots, columns] = ids_B, log_probs_B
        self._num_new[rows] += 1
        self.last_ids[rows] = ids_B
        if self._seen is not None:
            self._seen[self._to_device(slots), self._to_device(ids_B)] = True
        is_end = (self._end_ids[rows] == ids_B[:, None]).any(axis=1)
        return is_end, self._num_new[rows] >= self._max_new[rows]

    def get_new_ids(self, slot: int) -> np.ndarray:
        """Returns the sampled ids of a row."""
        return self._new_ids[slot, : self._num_new[slot]]

    def cut(self, slot: int, *, length: int) -> None:
        """Keeps only the first sampled tokens of a row."""
        self._num_new[slot] = length

    def write_back(self, slot: int) -> Running:
        """Returns the request of a slot, with all that it has sampled."""
        request = self.requests[slot]
        count = self._num_new[slot]
        request.token_ids = [*request.prompt_ids, *self._new_ids[slot, :count].tolist()]
        request.log_probs = self._log_probs[slot, :count].tolist()
        request.computed = min(int(self.computed[slot]), len(request.token_ids))
        return request

    def reorder(self, order: np.ndarray) -> None:
        """Gives slot i the row of slot `order[i]`, and drops the rows that are not in `order`."""
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                array[: len(order)] = array[order]
            elif name in ("_seen", "_allowed") and array is not None:
                array[: len(order)] = array[self._to_device(order)]
        self.requests[len(order) :] = None
        self._generators[len(order) :] = None
        self.count = len(order)
        if not self.count:
            self._seen = self._allowed = None

    def sampling(self, rows: slice) -> SamplingRows:
        """Returns the parameters of rows, with new random numbers."""
        top_k, top_p, penalty = self._top_k[rows], self._top_p[rows], self._penalty[rows]
        is_restricted = self._is_restricted[rows]
        return SamplingRows(
            temperature_B=self._temperature[rows],
            top_k_B=top_k,
            top_p_B=top_p,
            penalty_B=penalty,
            is_shaped_B=(top_k < self._vocab_size) | (top_p < 1.0) | (penalty != 1.0) | is_restricted,
            uniform_B=self._draw_uniforms(rows),
            seen_BV=self._seen[rows] if self._seen is not None and (penalty != 1.0).any() else None,
            allowed_BV=self._allowed[rows] if self._allowed is not None and is_restricted.any() else None,
        )

    def _draw_uniforms(self, rows: slice) -> np.ndarray:
        """Returns one number of each row, from its own generator where it has a seed."""
        # On the CPU for every device, so that a seed means the same on all.
        uniform_B = torch.rand(rows.stop - rows.start, dtype=torch.float64, generator=self._generator).numpy()
        for slot in rows.start + np.flatnonzero(self._num_drawn[rows] == _DRAWN_AHEAD):
            generator: Any = self._generators[slot]
            self._uniforms[slot] = torch.rand(_DRAWN_AHEAD, dtype=torch.float64, generator=generator).numpy()
            self._num_drawn[slot] = 0
        slots = rows.start + np.flatnonzero(self._num_drawn[rows] != _NO_ID)
        uniform_B[slots - rows.start] = self._uniforms[slots, self._num_drawn[slots]]
        self._num_drawn[slots] += 1
        return uniform_B

    def _mask_ids(self, mask: Tensor | None, slot: int, ids: Any, *, fill: bool) -> Tensor:
        """Returns the mask over slots and ids, with True at this slot's ids alone."""
        if mask is None:
            mask = torch.full((len(self.requests), self._vocab_size), fill, device=self._device)
        mask[slot] = False
        chosen = sorted({token for token in ids if token < self._vocab_size})
        mask[slot, torch.tensor(chosen, dtype=torch.int64, device=self._device)] = True
        return mask

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _widen_columns(array: np.ndarray, columns: int, *, fill: int) -> np.ndarray:
    """Returns the array with at least so many columns."""
    if columns <= array.shape[1]:
        return array
    return np.pad(array, ((0, 0), (0, max(columns, 2 * array.shape[1]) - array.shape[1])), constant_values=fill)
