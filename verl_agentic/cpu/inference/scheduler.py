"""The scheduler of requests: assigns slots and runs steps, without a thread.

Slots `0 .. decoding` hold requests that sample one token a step; the slots after them hold requests whose prompt is
still being computed. Both ranges have no gaps, so that a batch is a slice of the cache.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings
from verl_agentic.cpu.inference.decode_rows import DecodeRows
from verl_agentic.cpu.inference.decode_step import DecodeStep
from verl_agentic.cpu.inference.decoder import Decoder
from verl_agentic.cpu.inference.kv_cache import PrefixStore, SlotCache, common_length
from verl_agentic.cpu.inference.request import FinishReason, Generation, Running
from verl_agentic.cpu.inference.span import attention_chunks, count_attended, make_span
from verl_agentic.cpu.inference.stop_text import StopFilter, tokens_before_stop
from verl_agentic.cpu.inference.token_sampling import read_sampled, sample

_POSITION_STEP = 64  # slots grow by multiples of this many positions
_LEAST_SHARED = 16  # tokens of a running request that are worth waiting for
_MAX_WASTE = 1.1  # of attention over decoding requests that are not in order


class EngineOptions(Settings):
    """Limits of memory and time of the inference engine."""

    max_cached_tokens: int = 262_144
    """Maximum number of cached tokens: slots of running requests and kept prefixes together. While slots are copied to
    a larger place, up to half of them exist twice."""
    prefill_tokens: int = 2_048
    """Maximum number of prompt tokens of one step. Decoding continues between two such steps."""
    prefix_reuse: bool = True
    """Keep the cache of finished requests for requests that begin with the same tokens."""


class EngineConfig(EngineOptions):
    """`EngineOptions` with verl's keys `rollout.max_num_seqs` and `rollout.seed`."""

    max_running: int = 256
    """Maximum number of requests in the batch."""
    seed: int = 0
    """Seed of requests without a seed of their own."""


class Scheduler:
    """Serves requests step by step; used by one thread."""

    def __init__(self, decoder: Decoder, tokenizer: Any, config: EngineConfig) -> None:
        self._decoder = decoder
        self._tokenizer = tokenizer
        self._config = config
        self._cache = SlotCache(decoder.cache_shape)
        self._prefixes = PrefixStore()
        shape = decoder.cache_shape
        self._rows = DecodeRows(config.max_running, vocab_size=shape.vocab_size, device=shape.device, seed=config.seed)
        self._decode_step = DecodeStep(decoder)
        self._stop_filter = StopFilter(tokenizer, vocab_size=shape.vocab_size)
        self.waiting: deque[Running] = deque()
        self._filling: list[Running] = []
        self._is_mixed = False
        self.weights_version = 0
        self.counts = {"generated_tokens": 0, "prefill_tokens": 0, "prefix_hit_tokens": 0, "steps": 0}

    @property
    def running(self) -> list[Running]:
        """All requests that have a slot, in the order of the slots."""
        return [*self._rows.requests[: self._rows.count], *self._filling]

    @property
    def cached_tokens(self) -> int:
        """Number of tokens with allocated memory."""
        return self._cache.slots * self._cache.positions + self._prefixes.num_tokens

    def submit(self, request: Running) -> None:
        """Queues a request. Raises ConfigError if it exceeds the configured memory."""
        if _round_up(request.needed) > self._config.max_cached_tokens:
            raise ConfigError(
                f"a request of {len(request.prompt_ids)} prompt and up to {request.max_tokens} new tokens does not fit "
                f"into max_cached_tokens={self._config.max_cached_tokens}; raise it, or ask for fewer tokens"
            )
        self.waiting.append(request)

    def step(self) -> None:
        """Admits requests, computes one piece of the new prompts, and one token of every running request."""
        self.counts["steps"] += 1
        self._admit_waiting()
        if self._filling:
            self._fill_prompts()
        if self._rows.count:
            self._decode_rows()

    def drop(self, request: Running) -> None:
        """Drops a request whose caller cancelled it."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self._filling:
            self._drop_filling(request)
        elif request in self.running:
            self._remove_slots(np.array([self.running.index(request)]))

    def finish_all(self, reason: FinishReason) -> int:
        """Ends every running and waiting request with its partial output; returns their number."""
        ended = self.running + list(self.waiting)
        self._remove_slots(np.arange(self._rows.count))
        for request in ended:
            self.drop(request)
        for request in ended:
            self._deliver_generation(request, reason)
        return len(ended)

    def fail(self, error: Exception) -> None:
        """Answers every running request with an error, or every waiting one if it was to be the first to run."""
        failed = self.running or list(self.waiting)
        if not self.running:
            self.waiting.clear()
        self._rows.reorder(np.arange(0))
        self._filling = []
        self._free_memory()
        for request in failed:
            request.deliver(error)

    def forget_prefixes(self) -> None:
        """Empties the store of finished requests."""
        self._prefixes.clear()

    def forget(self) -> None:
        """Empties the cache; nothing may be running."""
        assert not self.running
        self._prefixes.clear()
        self._free_memory()

    def _free_memory(self) -> None:
        """Frees the memory of slots and graphs."""
        self._decode_step.release()
        self._cache.shrink()

    def _admit_waiting(self) -> None:
        """Gives waiting requests a slot, and copies what a running one has computed already."""
        skipped: deque[Running] = deque()
        copies: list[tuple[int, int, int]] = []
        running = self.running
        needed = max((request.needed for request in running), default=0)
        try:
            while self.waiting and len(running) < self._config.max_running:
                # Every request must fit if all grow to their full length.
                needed = max(needed, self.waiting[0].needed)
                if (len(running) + 1) * _round_up(needed) > self._config.max_cached_tokens:
                    break
                request = self.waiting[0]
                if self._give_slot(request, running, copies):
                    running.append(request)
                else:
                    skipped.append(self.waiting.popleft())
        finally:
            self.waiting.extendleft(reversed(skipped))
        if copies:
            sources, targets, lengths = zip(*copies, strict=True)
            self._cache.move(sources, targets, length=max(lengths))

    def _give_slot(self, request: Running, running: list[Running], copies: list[tuple[int, int, int]]) -> bool:
        """Makes the first waiting request run, and notes the copy from another slot.

        Returns False if another request is computing many of its tokens: it waits and copies them.
        """
        slot = len(running)
        prefix, length = self._prefixes.find(request.prompt_ids) if self._config.prefix_reuse else (None, 0)
        # The last prompt token is always computed: its logits choose the first new token.
        length = min(length, len(request.prompt_ids) - 1)
        source, shared, shared_later = self._find_shared(request, running)
        min_gain = 1 if shared_later == len(request.prompt_ids) - 1 else _LEAST_SHARED + 1
        if shared_later >= max(length, shared) + min_gain:
            return False
        if shared <= max(length, _LEAST_SHARED):
            source, shared = None, 0
        request.computed = request.cached = length = max(length, shared)
        self._filling.append(self.waiting.popleft())
        self._reserve_positions(len(request.prompt_ids))
        if source is not None:
            copies.append((source, slot, length))
        elif prefix is not None:
            self._cache.load(slot, prefix, length=length)
        self.counts["prefix_hit_tokens"] += length
        return True

    def _reserve_positions(self, positions: int) -> None:
        """Resizes the slots of running requests to this many positions; evicts kept prefixes if needed."""
        cache, slots = self._cache, self._rows.count + len(self._filling)
        if slots <= cache.slots and positions <= cache.positions:
            return
        computed = [*self._rows.computed[: self._rows.count].tolist(), *(r.computed for r in self._filling)]
        exact = _round_up(max(positions, *computed))
        full = _round_up(max(r.needed for r in self.running))
        budget = self._config.max_cached_tokens
        # Spare slots and positions avoid copies, but should not evict kept prefixes.
        wide = slots if slots <= cache.slots else min(2 * slots, self._config.max_running)
        spare = min(max(exact + exact // 2, cache.positions), full)
        expected = min(slots + len(self.waiting), self._config.max_running)
        if expected * full <= budget // 4:
            wide, spare = max(wide, expected), full
        for num_slots, longest, room in (
            (max(wide, cache.slots), max(exact, spare), budget - self._prefixes.num_tokens),
            (slots, max(exact, spare), budget),
            (slots, exact, budget),
        ):
            if num_slots * longest <= room:
                self._prefixes.evict(max_tokens=budget - num_slots * longest)
                cache.resize(slots=num_slots, positions=longest)
                return
        raise AssertionError("admission let in more than fits")

    def _find_shared(self, request: Running, running: list[Running]) -> tuple[int | None, int, int]:
        """Returns the slot with most computed tokens of the request, their number, and the number that one will have.

        Of equal ones the first, so that no slot is copied from before it is copied to.
        """
        best, best_length, later_length, max_length = None, 0, 0, len(request.prompt_ids) - 1
        for slot, other in enumerate(running if self._config.prefix_reuse else ()):
            length = min(common_length(other.prompt_ids, request.prompt_ids), max_length)
            later_length = max(later_length, length)
            if min(length, other.computed) > best_length:
                best, best_length = slot, min(length, other.computed)
            if best_length == max_length:
                break
        return best, best_length, later_length

    def _fill_prompts(self) -> None:
        """Computes the next piece of new prompts; finished prompts begin to decode."""
        width = max(1, self._config.prefill_tokens // len(self._filling))
        pieces = [r.token_ids[r.computed : r.computed + width] for r in self._filling]
        past, first = [r.computed for r in self._filling], self._rows.count
        self._reserve_positions(max(before + len(piece) for before, piece in zip(past, pieces, strict=True)))
        span = make_span(pieces, past, start=first, shape=self._decoder.cache_shape)
        logits_BV = self._decoder.forward(span, self._cache)
        self.counts["prefill_tokens"] += sum(map(len, pieces))
        for request, piece in zip(self._filling, pieces, strict=True):
            request.computed += len(piece)
        filled_indices = [i for i, r in enumerate(self._filling) if r.computed == len(r.token_ids)]
        if not filled_indices:
            return
        if len(filled_indices) < len(self._filling):
            logits_BV = logits_BV[filled_indices]
        for request in [self._filling[i] for i in filled_indices]:
            self._start_decoding(request)
        rows = slice(first, self._rows.count)
        self._append_tokens(rows, *read_sampled(sample(logits_BV, self._rows.sampling(rows))))

    def _start_decoding(self, request: Running) -> None:
        """Brings a filled request to the end of the decoding range, by swapping it with the first filling one."""
        index, first = self._filling.index(request), self._rows.count
        if index > 0:
            other = self._filling[0]
            spare = self._cache.save(first, other.token_ids[: other.computed])
            self._cache.move([first + index], [first], length=request.computed)
            self._cache.load(first + index, spare, length=other.computed)
            self._filling[0], self._filling[index] = request, other
        self._rows.add(self._filling.pop(0), stop_key=self._stop_filter.add_stops(request.params.stop))
        self._is_mixed = True

    def _sort_decoding(self) -> None:
        """Puts long requests first, if attention in chunks then reads clearly less.

        The last and shortest one fills the gap of a finished one, so that the order lasts.
        """
        lengths = self._rows.computed[: self._rows.count]
        order = np.argsort(-lengths, kind="stable")
        num_attended, num_attended_sorted = (
            count_attended(attention_chunks(row_lengths, shape=self._decoder.cache_shape))
            for row_lengths in (lengths.tolist(), lengths[order].tolist())
        )
        if num_attended > _MAX_WASTE * num_attended_sorted:
            self._cache.move(order.tolist(), range(len(order)), length=int(lengths.max()))
            self._rows.reorder(order)

    def _decode_rows(self) -> None:
        if self._is_mixed:
            self._sort_decoding()
            self._is_mixed = False
        rows = slice(0, self._rows.count)
        self._reserve_positions(int(self._rows.computed[rows].max()) + 1)
        sampled = self._decode_step.run(self._rows, self._cache, [r.computed for r in self._filling])
        self._rows.computed[rows] += 1
        self._append_tokens(rows, *sampled)

    def _append_tokens(self, rows: slice, ids_B: np.ndarray, log_probs_B: np.ndarray) -> None:
        """Appends the sampled tokens and ends finished requests."""
        self.counts["generated_tokens"] += len(ids_B)
        is_stopped, is_full = self._rows.append(rows, ids_B, log_probs_B)
        for row in self._stop_filter.find_candidates(self._rows.stop_keys[rows], ids_B):
            is_stopped[row] = is_stopped[row] or self._hits_stop_text(rows.start + row)
        ended = np.flatnonzero(is_stopped | is_full)
        if not ended.size:
            return
        requests = self._remove_slots(rows.start + ended)
        for row, request in zip(ended, requests, strict=True):
            self._deliver_generation(request, "stop" if is_stopped[row] else "length")

    def _hits_stop_text(self, slot: int) -> bool:
        params = self._rows.requests[slot].params
        length = tokens_before_stop(self._tokenizer, self._rows.get_new_ids(slot), params.stop)
        if length is not None and not params.include_stop_str_in_output:
            self._rows.cut(slot, length=length)
        return length is not None

    def _remove_slots(self, slots: np.ndarray) -> list[Running]:
        """Frees slots of decoding requests, keeps their cache as prefixes, closes the gaps; returns the requests."""
        rows, count, num_filling = self._rows, self._rows.count, len(self._filling)
        requests = [rows.write_back(slot) for slot in slots]
        if self._config.prefix_reuse:
            for slot, request in zip(slots.tolist(), requests, strict=True):
                self._prefixes.add(self._cache.save(slot, request.token_ids[: request.computed]))
        remaining_slots = np.setdiff1d(np.arange(count), slots)
        order = np.arange(len(remaining_slots))
        gaps = slots[slots < len(remaining_slots)]
        order[gaps] = remaining_slots[remaining_slots >= len(remaining_slots)]
        # The last filling requests move into the places that are free before their range.
        num_moved = min(count - len(remaining_slots), num_filling)
        last = np.arange(count + num_filling - num_moved, count + num_filling)
        moved = self._filling[num_filling - num_moved :]
        lengths = [*rows.computed[order[gaps]].tolist(), *(request.computed for request in moved)]
        self._cache.move(
            [*order[gaps].tolist(), *last.tolist()],
            [*gaps.tolist(), *range(len(remaining_slots), len(remaining_slots) + num_moved)],
            length=max(lengths, default=0),
        )
        self._filling = moved + self._filling[: num_filling - num_moved]
        rows.reorder(order)
        self._is_mixed = True
        self._keep_bound()
        return requests

    def _drop_filling(self, request: Running) -> None:
        """Frees the slot of a request whose prompt is not computed yet, and keeps its cache as a prefix."""
        index, first, last = self._filling.index(request), self._rows.count, self._filling[-1]
        if self._config.prefix_reuse:
            self._prefixes.add(self._cache.save(first + index, request.token_ids[: request.computed]))
        self._cache.move([first + len(self._filling) - 1], [first + index], length=last.computed)
        self._filling[index] = last
        self._filling.pop()
        self._keep_bound()

    def _keep_bound(self) -> None:
        """Evicts prefixes beyond the memory limit; unused slots are freed first."""
        budget = self._config.max_cached_tokens
        if not self.running and self.cached_tokens > budget:
            self._cache.shrink()
        self._prefixes.evict(max_tokens=budget - self._cache.slots * self._cache.positions)

    def _deliver_generation(self, request: Running, reason: FinishReason) -> None:
        request.deliver(
            Generation(
                token_ids=request.token_ids[len(request.prompt_ids) :],
                log_probs=request.log_probs if request.params.logprobs else None,
                finish_reason=reason,
                num_cached_tokens=request.cached,
                weights_version=self.weights_version,
            )
        )


def _round_up(positions: int) -> int:
    return -(-positions // _POSITION_STEP) * _POSITION_STEP
