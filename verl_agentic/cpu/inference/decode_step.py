"""One token of every decoding row: forward pass and sampling, replayed as a CUDA graph on a GPU.

Axes: B rows, V ids of the vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl_agentic.cpu.inference.decode_rows import DecodeRows, SamplingRows
from verl_agentic.cpu.inference.decoder import Decoder, FusedDecoder
from verl_agentic.cpu.inference.kv_cache import SlotCache
from verl_agentic.cpu.inference.span import attention_chunks, make_decode_span
from verl_agentic.cpu.inference.token_sampling import choose, read_sampled, sample

_LOGGER = logging.getLogger(__name__)
_GRAPH_ROWS = (1, 8, 32)  # then multiples of 64: few sizes, because each is captured after every release of memory
_GRAPH_POSITIONS = 256
_MAX_GRAPHS = 64

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Records the device's work of a function and returns a function that repeats it."""


class DecodeStep:
    """Runs steps; keeps graphs by the number of rows and of positions that they reach, each rounded up."""

    def __init__(self, decoder: Decoder, *, capture: Capture | None = None) -> None:
        """Takes the decoder and how to capture; by default as a CUDA graph on CUDA, and not at all elsewhere."""
        self._decoder = decoder
        device = decoder.cache_shape.device
        self._capture = capture or (_CudaCapture() if device.type == "cuda" else None)
        self._can_capture = self._capture is not None and isinstance(decoder, FusedDecoder)
        self._graphs: dict[tuple[int, int], Callable[[], None] | None] = {}
        self._keys: Tensor | None = None
        self._buffers: _Buffers | None = None

    @torch.inference_mode()
    def run(self, rows: DecodeRows, cache: SlotCache, filling: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Computes and samples one token of every row; returns ids and log-probs.

        Args:
            rows: the requests of slots `0 .. count`.
            cache: of all slots, wide enough for the new tokens.
            filling: number of computed tokens of the slots behind these.

        Raises:
            PolicyError: see `read_sampled`.
        """
        sampling = rows.sampling(slice(0, rows.count))
        if self._can_capture:
            sampled_2B = self._run_graph(rows, sampling, cache, filling)
        else:
            sampled_2B = self._run_plain(rows, sampling, cache)
        return read_sampled(sampled_2B)

    def release(self) -> None:
        """Frees all graphs and their memory."""
        self._graphs.clear()
        self._keys = self._buffers = None
        if isinstance(self._capture, _CudaCapture):
            self._capture.release()

    def _run_plain(self, rows: DecodeRows, sampling: SamplingRows, cache: SlotCache) -> Tensor:
        shape, count = self._decoder.cache_shape, rows.count
        reaches = rows.computed[:count] + 1
        ids_B, past_B = torch.from_numpy(np.stack([rows.last_ids[:count], rows.computed[:count]])).to(shape.device)
        chunks = attention_chunks(reaches.tolist(), shape=shape)
        reach = int(reaches.max())
        span = make_decode_span(ids_B, past_B, start=0, reach=reach, chunks=chunks, shape=shape)
        return sample(self._decoder.forward(span, cache), sampling)

    def _run_graph(self, rows: DecodeRows, sampling: SamplingRows, cache: SlotCache, filling: list[int]) -> Tensor:
        if self._keys is not cache.keys:  # the graphs hold addresses of a cache that is gone
            self.release()
            self._keys = cache.keys
            self._buffers = _Buffers(self._decoder, rows=cache.slots)
        assert self._buffers is not None
        batch = min(_round_up_rows(rows.count), cache.slots)
        reach = int(rows.computed[: rows.count].max()) + 1
        reach = min(-(-reach // _GRAPH_POSITIONS) * _GRAPH_POSITIONS, cache.positions)
        self._buffers.fill(rows, sampling, filling, batch)
        key = (batch, reach)
        if key in self._graphs and self._graphs[key] is None:
            self._graphs[key] = self._try_capture(cache, batch, reach)
        replay = self._graphs.get(key)
        if replay is not None:
            replay()
        else:
            # The first time runs without a graph, and loads all kernels that a capture must find loaded.
            if len(self._graphs) >= _MAX_GRAPHS:
                self._graphs.clear()
            self._graphs[key] = None
            self._compute_step(self._buffers, cache, batch, reach)
        if sampling.is_shaped_B.any():
            return sample(self._buffers.logits_BV[: rows.count], sampling)
        return self._buffers.sampled_2B[:, : rows.count]

    def _try_capture(self, cache: SlotCache, batch: int, reach: int) -> Callable[[], None] | None:
        assert self._capture is not None and self._buffers is not None
        buffers = self._buffers
        try:
            return self._capture(lambda: self._compute_step(buffers, cache, batch, reach))
        except Exception:
            _LOGGER.warning("decoding runs without CUDA graphs, because one cannot be captured", exc_info=True)
            self._can_capture = False
            return None

    def _compute_step(self, buffers: _Buffers, cache: SlotCache, batch: int, reach: int) -> None:
        """Computes and samples from the buffers into the buffers, with tensors of fixed addresses."""
        shape = self._decoder.cache_shape
        inputs_4B = buffers.inputs_B4[:batch].T
        ids_B, past_B = inputs_4B[:2].long()
        span = make_decode_span(ids_B, past_B, start=0, reach=reach, chunks=((0, batch, reach),), shape=shape)
        buffers.logits_BV[:batch] = self._decoder.forward(span, cache)
        buffers.sampled_2B[:, :batch] = choose(buffers.logits_BV[:batch], inputs_4B[2], inputs_4B[3])


class _Buffers:
    """Inputs and outputs of the graphs, at fixed addresses."""

    def __init__(self, decoder: Decoder, *, rows: int) -> None:
        shape = decoder.cache_shape
        self._host_B4 = torch.zeros(rows, 4, dtype=torch.float64, pin_memory=shape.device.type == "cuda")
        self.inputs_B4 = torch.zeros(rows, 4, dtype=torch.float64, device=shape.device)
        """Id, number of computed tokens, uniform number, temperature."""
        self.logits_BV = torch.zeros(rows, shape.vocab_size, dtype=shape.dtype, device=shape.device)
        self.sampled_2B = torch.zeros(2, rows, dtype=torch.float64, device=shape.device)

    def fill(self, rows: DecodeRows, sampling: SamplingRows, filling: list[int], batch: int) -> None:
        """Copies the inputs of a step to the device.

        The other rows compute something that nobody reads. They write behind the tokens of the slot that is there.
        """
        host_B4, count = self._host_B4.numpy(), rows.count
        host_B4[count:batch] = 0.0, 0.0, 0.0, 1.0
        host_B4[count : count + len(filling), 1] = filling[: len(host_B4) - count]
        host_B4[:count, 0], host_B4[:count, 1] = rows.last_ids[:count], rows.computed[:count]
        host_B4[:count, 2], host_B4[:count, 3] = sampling.uniform_B, sampling.temperature_B
        self.inputs_B4[:batch].copy_(self._host_B4[:batch], non_blocking=True)


class _CudaCapture:
    """Captures CUDA graphs, which share one pool of memory because only one runs at a time."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        if self._stream is None or self._pool is None:
            self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            # Other threads of the process may use the device meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph.replay

    def release(self) -> None:
        """Forgets the pool; its memory is free once the graphs are gone."""
        self._stream = self._pool = None


def _round_up_rows(count: int) -> int:
    return next((rows for rows in _GRAPH_ROWS if rows >= count), -(-count // 64) * 64)
