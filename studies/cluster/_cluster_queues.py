"""Discrete events: a clock, stations with queues, engines with continuous batching, and verl's balancer.

A process is a generator of pairs `(station, amount)`. It goes on when the station has served that amount. An event is a
turn or less often; tokens have no events of their own.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

Resume = Callable[[], None]
Process = Generator[tuple[Any, Any], None, None]


class Clock:
    """Runs actions in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Resume]] = []
        self._count = 0

    def at(self, time_s: float, action: Resume) -> None:
        """Plans an action."""
        self._count += 1
        heapq.heappush(self._events, (time_s, self._count, action))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Runs all events, or until a condition holds."""
        events = self._events
        while events and not until():
            self.now, _, action = heapq.heappop(events)
            action()

    def start(self, process: Process) -> None:
        """Runs a process from now on; it ends at its next event once it is closed."""

        def resume() -> None:
            step = next(process, None)
            if step is not None:
                step[0].use(step[1], resume)

        resume()

    def use(self, amount_s: float, resume: Resume) -> None:
        """Waits, as a station without a queue."""
        self.at(self.now + amount_s, resume)


class Station:
    """One queue, served first come first served by several servers; amounts are seconds of service."""

    def __init__(self, clock: Clock, servers: int = 1) -> None:
        self._clock, self.servers = clock, servers
        self._free_at = [0.0] * servers
        self._given_s = 0.0
        self.waited_s = 0.0
        self.served = 0

    def use(self, amount_s: float, resume: Resume) -> None:
        """Serves a customer, after all earlier ones."""
        now = self._clock.now
        begin = max(now, self._free_at[0])
        heapq.heapreplace(self._free_at, begin + amount_s)
        self.waited_s += begin - now
        self._given_s += amount_s
        self.served += 1
        self._clock.at(begin + amount_s, resume)

    @property
    def busy_s(self) -> float:
        """Seconds of service up to now, of all servers together."""
        now = self._clock.now
        return self._given_s - sum(free - now for free in self._free_at if free > now)


@dataclass(frozen=True, kw_only=True)
class EngineSpeed:
    """A step of decoding takes `step_s + sequence_s * sequences + cached_token_s * tokens in their contexts`."""

    step_s: float
    sequence_s: float
    cached_token_s: float
    prefill_token_s: float
    request_s: float = 0.0
    """Time that decoding waits for each new request, beside its prompt."""
    max_sequences: int = 256
    cache_tokens: float = math.inf
    """Tokens of running requests and kept prefixes together."""


@dataclass(frozen=True)
class Request:
    """A turn: the context before it, and the tokens that are sampled."""

    session: int
    context: int
    tokens: int


class Engine:
    """Continuous batching: prompts are computed one after the other and hold decoding up, which all requests share.

    Kept prefixes are evicted by age, when running requests need their place.
    """

    def __init__(self, clock: Clock, speed: EngineSpeed) -> None:
        self._clock, self.speed = clock, speed
        self._running: list[tuple[float, int, Request, Resume]] = []
        """By the number of decoded tokens at which they end."""
        self._waiting: deque[tuple[Request, Resume]] = deque()
        self._kept: OrderedDict[int, int] = OrderedDict()
        self._kept_tokens = self._running_tokens = 0
        self._decoded = self._busy_s = self._last = 0.0
        self._stalled_until = 0.0
        self._version = self._count = 0
        self.is_dead = False
        self.generated = self.prefilled = self.reused = 0

    def use(self, amount: Request, resume: Resume) -> None:
        """Answers a request; a dead engine fails it at once."""
        if self.is_dead:
            self._clock.at(self._clock.now, resume)
            return
        self._advance()
        self._waiting.append((amount, resume))
        self._admit()
        self._plan()

    @property
    def busy_s(self) -> float:
        """Seconds with a request, pauses not counted."""
        self._advance()
        return self._busy_s

    def pause(self) -> None:
        """Stops all work; requests stay."""
        self._advance()
        self._stalled_until = math.inf
        self._plan()

    def resume(self, after_s: float = 0.0) -> None:
        """Goes on with new weights: the contexts of all running requests are computed again, what is kept is lost."""
        self._advance()
        self._kept.clear()
        self._kept_tokens = 0
        self.prefilled += self._running_tokens
        self._stalled_until = self._clock.now + after_s + self._running_tokens * self.speed.prefill_token_s
        self._admit()
        self._plan()

    def drop(self) -> None:
        """Forgets all requests; nobody is answered."""
        self._advance()
        self._running.clear()
        self._waiting.clear()
        self._running_tokens = 0
        self._plan()

    def _admit(self) -> None:
        speed = self.speed
        while self._waiting and self._stalled_until < math.inf:
            request, resume = self._waiting[0]
            needed = request.context + request.tokens
            is_full = self._running_tokens + needed > speed.cache_tokens or len(self._running) >= speed.max_sequences
            if self._running and is_full:
                return
            self._waiting.popleft()
            kept = self._kept.pop(request.session, 0)
            self._kept_tokens -= kept
            self._running_tokens += needed
            while self._kept and self._running_tokens + self._kept_tokens > speed.cache_tokens:
                self._kept_tokens -= self._kept.popitem(last=False)[1]
            new = max(0, request.context - kept)
            self.prefilled += new
            self.reused += request.context - new
            filled_s = speed.request_s + new * speed.prefill_token_s
            self._stalled_until = max(self._clock.now, self._stalled_until) + filled_s
            self._count += 1
            heapq.heappush(self._running, (self._decoded + request.tokens, self._count, request, resume))

    def _token_s(self) -> float:
        speed = self.speed
        return speed.step_s + speed.sequence_s * len(self._running) + speed.cached_token_s * self._running_tokens

    def _advance(self) -> None:
        """Brings the decoded tokens up to now."""
        now = self._clock.now
        if self._running:
            paused = self._stalled_until == math.inf
            self._busy_s += 0.0 if paused else now - self._last
            self._decoded += max(0.0, now - max(self._last, self._stalled_until)) / self._token_s()
        self._last = now

    def _plan(self) -> None:
        self._version += 1
        if self._running and self._stalled_until < math.inf:
            left = max(0.0, self._running[0][0] - self._decoded)
            at = max(self._clock.now, self._stalled_until) + left * self._token_s()
            self._clock.at(at, partial(self._finish, self._version))

    def _finish(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        end, _, request, resume = heapq.heappop(self._running)
        self._decoded = max(self._decoded, end)
        total = request.context + request.tokens
        self._running_tokens -= total
        self._kept[request.session] = total
        self._kept_tokens += total
        self.generated += request.tokens
        self._admit()
        self._plan()
        resume()


class Router:
    """verl's `GlobalRequestLoadBalancer`: sticky sessions in a cache of fixed size, else the least loaded engine."""

    def __init__(self, engines: int, *, sessions: int, seed: int) -> None:
        self._load = [0] * engines
        self._places: OrderedDict[int, int] = OrderedDict()
        self._sessions, self._random = sessions, random.Random(seed)
        self._heap: list[tuple[int, float, int]] = []
        """Engines by load; entries with another load than the present one are stale."""
        self._removed: set[int] = set()
        self.hits = self.misses = 0

    def acquire(self, session: int) -> int:
        """Returns the engine of a session, with one more request."""
        place = self._places.get(session)
        if place is not None and place not in self._removed:
            self._places.move_to_end(session)
            self.hits += 1
        else:
            self.misses += 1
            place = self._least_loaded()
            self._places[session] = place
            if len(self._places) > self._sessions:
                self._places.popitem(last=False)
        self._change(place, 1)
        return place

    def release(self, engine: int) -> None:
        """Notes the end of a request."""
        self._change(engine, -1)

    def remove(self, engine: int) -> None:
        """Takes an engine out."""
        self._removed.add(engine)

    def place_of(self, session: int) -> int | None:
        """Returns the engine of a session that is remembered."""
        return self._places.get(session)

    def clear(self) -> None:
        """Forgets all sessions and requests."""
        self._places.clear()
        self._heap.clear()
        self._load = [0] * len(self._load)

    def _change(self, engine: int, by: int) -> None:
        self._load[engine] += by
        heapq.heappush(self._heap, (self._load[engine], self._random.random(), engine))

    def _least_loaded(self) -> int:
        if not self._heap or len(self._heap) > 8 * len(self._load) + 64:
            self._heap = [(load, self._random.random(), engine) for engine, load in enumerate(self._load)]
            heapq.heapify(self._heap)
        while self._heap:
            load, _, engine = self._heap[0]
            if load == self._load[engine] and engine not in self._removed:
                return engine
            heapq.heappop(self._heap)
        raise RuntimeError(f"no engine is left, got {len(self._removed)} removed ones of {len(self._load)}")
