"""The scheduler of requests: assigns slots and runs steps, without a thread.

Slots `0 .. decoding` hold requests that sample one token a step; the slots after them hold requests whose prompt is
still being computed. Both ranges have no gaps, so that a batch is a slice of the cache.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from verl_agentic.errors import ConfigError
from verl_agentic.inference.decoder import Decoder
from verl_agentic.inference.kv_cache import PrefixStore, SlotCache, common_length
from verl_agentic.inference.request import FinishReason, Generation, Running
from verl_agentic.inference.span import attention_chunks, make_span
from verl_agentic.inference.stop_text import tokens_before_stop
from verl_agentic.inference.token_sampling import sample
from verl_agentic.settings import Settings

_POSITION_STEP = 64  # slots grow by multiples of this many positions
_LEAST_SHARED = 16  # tokens of a running request that are worth waiting for
_MAX_WASTE = 1.1  # of attention over decoding requests that are not in order


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Settings):
    """Limits of memory and time of the inference engine."""

    max_cached_tokens: int = 262_144
    """Maximum number of cached tokens: slots of running requests and kept prefixes together. While slots are copied to
    a larger place, up to half of them exist twice."""
    prefill_tokens: int = 2_048
    """Maximum number of prompt tokens of one step. Decoding continues between two such steps."""
    prefix_reuse: bool = True
    """Keep the cache of finished requests for requests that begin with the same tokens."""


@dataclass(frozen=True, kw_only=True)
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
        self._generator = torch.Generator(device=decoder.cache_shape.device).manual_seed(config.seed)
        self.waiting: deque[Running] = deque()
        self._decoding: list[Running] = []
        self._filling: list[Running] = []
        self._is_mixed = False
        self.weights_version = 0
        self.counts = {"generated_tokens": 0, "prefill_tokens": 0, "prefix_hit_tokens": 0, "steps": 0}

    @property
    def running(self) -> list[Running]:
        """All requests that have a slot, in the order of the slots."""
        return self._decoding + self._filling

    @property
    def cached_tokens(self) -> int:
        """Number of tokens with allocated memory."""
        return self._cache.slots * self._cache.positions + self._prefixes.num_tokens

    def submit(self, request: Running) -> None:
        """Queues a request.

        Raises:
            ConfigError: it exceeds the configured memory.
        """
        if _round_up(request.needed) > self._config.max_cached_tokens:
            raise ConfigError(
                f"a request of {len(request.prompt_ids)} prompt and up to {request.max_tokens} new tokens does not fit "
                f"into max_cached_tokens={self._config.max_cached_tokens}; raise it, or ask for fewer tokens"
            )
        self.waiting.append(request)

    def step(self) -> None:
        """Admits requests, computes one piece of the new prompts, and one token of every running request."""
        self.counts["steps"] += 1
        self._admit()
        if self._filling:
            self._fill()
        if self._decoding:
            self._decode()

    def drop(self, request: Running) -> None:
        """Drops a request whose caller cancelled it."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self._release(request)

    def finish_all(self, reason: FinishReason) -> int:
        """Ends every running and waiting request with its partial output; returns their number."""
        ended = self.running + list(self.waiting)
        for request in ended:
            self.drop(request)
            self._deliver(request, reason)
        return len(ended)

    def fail(self, error: Exception) -> None:
        """Answers every running request with an error, or every waiting one if it was to be the first to run."""
        failed = self.running or list(self.waiting)
        if not self.running:
            self.waiting.clear()
        self._decoding, self._filling = [], []
        self._cache.shrink()
        for request in failed:
            request.deliver(error)

    def forget_prefixes(self) -> None:
        """Empties the store of finished requests."""
        self._prefixes.clear()

    def forget(self) -> None:
        """Empties the cache; nothing may be running."""
        assert not self.running
        self._prefixes.clear()
        self._cache.shrink()

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._config.max_running and self._fits(self.waiting[0]):
            request, slot = self.waiting[0], len(self.running)
            prefix, length = self._prefixes.find(request.prompt_ids) if self._config.prefix_reuse else (None, 0)
            # The last prompt token is always computed: its logits choose the first new token.
            length = min(length, len(request.prompt_ids) - 1)
            source, shared = self._shared_with_running(request)
            if shared <= max(length, _LEAST_SHARED):
                source, shared = None, 0
            elif source is not None and source.computed < shared:
                return  # a sibling is computing this very prompt: wait for it and copy
            request.computed = request.cached = length = max(length, shared)
            self._filling.append(self.waiting.popleft())
            self._reserve(len(request.prompt_ids))
            if source is not None:
                self._cache.move(self.running.index(source), slot, length=length)
            elif prefix is not None:
                self._cache.load(slot, prefix, length=length)
            self.counts["prefix_hit_tokens"] += length

    def _fits(self, request: Running) -> bool:
        """Returns whether this request fits if all running requests grow to their full length."""
        running = [*self.running, request]
        return len(running) * _round_up(max(r.needed for r in running)) <= self._config.max_cached_tokens

    def _reserve(self, positions: int) -> None:
        """Resizes the slots of running requests to this many positions; evicts kept prefixes if needed."""
        cache, slots = self._cache, len(self.running)
        if slots <= cache.slots and positions <= cache.positions:
            return
        exact = max(_round_up(positions), _round_up(max(r.computed for r in self.running)))
        full = _round_up(max(r.needed for r in self.running))
        budget = self._config.max_cached_tokens
        # Spare slots and positions avoid copies, but should not evict kept prefixes.
        wide = slots if slots <= cache.slots else min(2 * slots, self._config.max_running)
        spare = min(max(exact + exact // 2, cache.positions), full)
        expected = min(slots + len(self.waiting), self._config.max_running)
        if expected * full <= budget // 4:
            wide, spare = max(wide, expected), full
        for wanted, longest, room in (
            (max(wide, cache.slots), max(exact, spare), budget - self._prefixes.num_tokens),
            (slots, max(exact, spare), budget),
            (slots, exact, budget),
        ):
            if wanted * longest <= room:
                self._prefixes.evict(max_tokens=budget - wanted * longest)
                cache.resize(slots=wanted, positions=longest)
                return
        raise AssertionError("admission let in more than fits")

    def _shared_with_running(self, request: Running) -> tuple[Running | None, int]:
        best, best_length = None, 0
        if self._config.prefix_reuse:
            for other in self.running:
                length = min(common_length(other.prompt_ids, request.prompt_ids), len(request.prompt_ids) - 1)
                if length > best_length:
                    best, best_length = other, length
                if length == len(request.prompt_ids) - 1:
                    break
        return best, best_length

    def _fill(self) -> None:
        """Computes the next piece of new prompts; finished prompts begin to decode."""
        width = max(1, self._config.prefill_tokens // len(self._filling))
        pieces = [r.token_ids[r.computed : min(len(r.token_ids), r.computed + width)] for r in self._filling]
        logits_BV = self._forward(self._filling, pieces, len(self._decoding))
        self.counts["prefill_tokens"] += sum(map(len, pieces))
        for request, piece in zip(self._filling, pieces, strict=True):
            request.computed += len(piece)
        done = [i for i, r in enumerate(self._filling) if r.computed == len(r.token_ids)]
        if not done:
            return
        finished = [self._filling[i] for i in done]
        tokens = sample(logits_BV[done], finished, generator=self._generator)
        for request in finished:
            self._start_decoding(request)
        self._advance(finished, *tokens)

    def _start_decoding(self, request: Running) -> None:
        """Brings a filled request to the end of the decoding range, by swapping it with the first filling one."""
        at, first = self._filling.index(request), len(self._decoding)
        if at > 0:
            other = self._filling[0]
            spare = self._cache.save(first, other.token_ids[: other.computed])
            self._cache.move(first + at, first, length=request.computed)
            self._cache.load(first + at, spare, length=other.computed)
            self._filling[0], self._filling[at] = request, other
        self._decoding.append(self._filling.pop(0))
        self._is_mixed = True

    def _sort_decoding(self) -> None:
        """Puts long requests first, if attention in chunks then reads clearly less.

        The last and shortest one fills the gap of a finished one, so that the order lasts.
        """
        lengths = [request.computed for request in self._decoding]
        order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        now, then = (
            sum((end - begin) * reach for begin, end, reach in attention_chunks(some))
            for some in (lengths, [lengths[at] for at in order])
        )
        if now > _MAX_WASTE * then:
            self._cache.reorder(order, length=lengths[order[0]])
            self._decoding = [self._decoding[at] for at in order]

    def _decode(self) -> None:
        if self._is_mixed:
            self._sort_decoding()
            self._is_mixed = False
        rows = list(self._decoding)
        pieces = [r.token_ids[r.computed :] for r in rows]
        logits_BV = self._forward(rows, pieces, 0)
        for request in rows:
            request.computed += 1
        self._advance(rows, *sample(logits_BV, rows, generator=self._generator))

    def _forward(self, rows: list[Running], pieces: list[list[int]], start: int) -> Tensor:
        self._reserve(max(r.computed + len(piece) for r, piece in zip(rows, pieces, strict=True)))
        span = make_span(pieces, [r.computed for r in rows], start=start, shape=self._decoder.cache_shape)
        return self._decoder.forward(span, self._cache)

    def _advance(self, rows: list[Running], ids: list[int], log_probs: list[float]) -> None:
        """Appends the sampled tokens and ends finished requests."""
        self.counts["generated_tokens"] += len(rows)
        for request, token, log_prob in zip(rows, ids, log_probs, strict=True):
            request.token_ids.append(token)
            request.log_probs.append(log_prob)
            reason = self._finish_reason(request, token)
            if reason is not None:
                self._release(request)
                self._deliver(request, reason)

    def _finish_reason(self, request: Running, token: int) -> FinishReason | None:
        if token in request.stop_ids:
            return "stop"
        if request.params.stop and self._hits_stop_text(request):
            return "stop"
        return "length" if request.num_new >= request.max_tokens else None

    def _hits_stop_text(self, request: Running) -> bool:
        first_new, params = len(request.prompt_ids), request.params
        keep = tokens_before_stop(self._tokenizer, request.token_ids[first_new:], params.stop)
        if keep is not None and not params.include_stop_str_in_output:
            del request.token_ids[first_new + keep :], request.log_probs[keep:]
        return keep is not None

    def _release(self, request: Running) -> None:
        """Frees the request's slot, keeps its cache as a prefix, and closes the gap."""
        slot = self.running.index(request)
        computed = request.token_ids[: request.computed]
        request.computed = len(computed)
        if self._config.prefix_reuse:
            self._prefixes.add(self._cache.save(slot, computed))
        if request in self._decoding:
            last = self._decoding[-1]
            self._cache.move(len(self._decoding) - 1, slot, length=last.computed)
            self._decoding[slot] = last
            self._decoding.pop()
            self._is_mixed = True
            slot = len(self._decoding)  # the gap is now before the filling range
            if self._filling:
                last = self._filling[-1]
                self._cache.move(slot + len(self._filling), slot, length=last.computed)
                self._filling.insert(0, self._filling.pop())
        else:
            at, last = self._filling.index(request), self._filling[-1]
            self._cache.move(len(self.running) - 1, slot, length=last.computed)
            self._filling[at] = last
            self._filling.pop()
        self._keep_bound()

    def _keep_bound(self) -> None:
        """Evicts prefixes beyond the memory limit; unused slots are freed first."""
        budget = self._config.max_cached_tokens
        if not self.running and self.cached_tokens > budget:
            self._cache.shrink()
        self._prefixes.evict(max_tokens=budget - self._cache.slots * self._cache.positions)

    def _deliver(self, request: Running, reason: FinishReason) -> None:
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
