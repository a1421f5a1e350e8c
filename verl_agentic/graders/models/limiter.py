"""A rate limit shared by all processes of a machine: requests and tokens per minute, and concurrent requests.

Reward workers are processes, so they need a shared limit. It is stored in a folder, without a server: a token bucket in
a locked file, and one lock file per concurrent request. The kernel releases the locks of dead processes.

Machines share no folder, because locks on network file systems are slow. Each node gets a fixed share, `1 / nodes` of
every limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.paths import private_folder
from verl_agentic.base.settings import Settings, setting

MAX_WAIT_S = 30.0
"""Longest wait before a retry of a judge or a reward model."""
_POLL_S = 0.02
_BURST_S = 1.0


class EndpointLimits(Settings):
    """Limits of an endpoint, for all nodes together."""

    requests_per_minute: float | None = setting(None, above=0)
    tokens_per_minute: float | None = setting(None, above=0)
    """Tokens of prompts and answers."""
    concurrency: int = setting(32, min=1)
    """Maximum number of concurrent requests."""
    nodes: int = setting(1, min=1)
    """Machines that score; each gets its share."""
    folder: str | None = None
    """Folder of the limit, on a local disk, the same for all processes; by default a temporary folder per endpoint."""

    def check_together(self) -> None:
        if self.concurrency < self.nodes:
            raise ConfigError(f"concurrency must be at least 1 per node, got {self.concurrency} for {self.nodes} nodes")


class Limiter:
    """The limit of one endpoint, as seen from one event loop.

    A bucket holds the inflow of one second (at least one request), so a pause is not followed by a burst. A request
    with more tokens than the bucket holds waits until it is full and leaves a debt for later requests.
    """

    def __init__(self, limits: EndpointLimits, *, name: str) -> None:
        """Makes the folder.

        Args:
            name: name of the limit; equal names share a limit.

        Raises:
            ConfigError: another user owns the folder.
        """
        self._folder = _make_folder(limits, name)
        self._slots = limits.concurrency // limits.nodes
        self._rates = {
            key: rate / 60 / limits.nodes
            for key, rate in (("requests", limits.requests_per_minute), ("tokens", limits.tokens_per_minute))
            if rate is not None
        }
        # A queue of waiting requests; only its head reads the files.
        self._line = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def request(self, num_tokens: int) -> AsyncIterator[None]:
        """Waits until a request of so many tokens may be sent, and holds its slot during the block."""
        async with self._line:
            slot = await self._take_slot()
            try:
                # Other processes change the state, so there is no event to wait for.
                while (wait_s := self._count_request(num_tokens)) > 0:  # noqa: ASYNC110
                    await asyncio.sleep(wait_s)
            except BaseException:
                slot.close()
                raise
        try:
            yield
        finally:
            slot.close()

    def correct(self, num_tokens: int) -> None:
        """Corrects the token count of a request by a difference."""
        if num_tokens and "tokens" in self._rates:
            with self._hold_state() as state:
                state["tokens"] = state.get("tokens", 0.0) - num_tokens

    def pause(self, seconds: float) -> None:
        """Pauses all processes for a while, as the endpoint requested."""
        with self._hold_state() as state:
            state["not_before"] = max(state.get("not_before", 0.0), time.monotonic() + seconds)

    async def _take_slot(self) -> IO[bytes]:
        """Returns a locked file; closing it frees the slot."""
        while True:
            for index in random.sample(range(self._slots), self._slots):
                file = (self._folder / f"slot-{index}").open("ab")
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return file
                except BlockingIOError:
                    file.close()
            await asyncio.sleep(_POLL_S * random.uniform(0.5, 1.5))

    def _count_request(self, num_tokens: int) -> float:
        """Counts the request and returns 0 if it may start, else returns the seconds to wait."""
        needs = {"requests": 1.0, "tokens": float(num_tokens)}
        with self._hold_state() as state:
            now = time.monotonic()
            # A clock that went backwards belongs to another boot.
            elapsed = now - state["time"] if state.get("time", now + 1) <= now else 0.0
            paused_s = state.get("not_before", 0.0) - now
            wait_s = paused_s if 0 < paused_s < 3_600 else 0.0
            for key, rate in self._rates.items():
                capacity = max(1.0, rate * _BURST_S)
                state[key] = min(capacity, state.get(key, capacity) + elapsed * rate)
                wait_s = max(wait_s, (min(needs[key], capacity) - state[key]) / rate)
            state["time"] = now
            if wait_s <= 0:
                for key in self._rates:
                    state[key] -= needs[key]
        return max(0.0, wait_s)

    @contextlib.contextmanager
    def _hold_state(self) -> Iterator[dict[str, float]]:
        """Provides the locked state, and writes it back."""
        with (self._folder / "state.json").open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            try:
                state = dict(json.loads(file.read()))
            except ValueError:
                state = {}
            yield state
            # Written in place, because after a rename others would hold locks on the old file.
            file.truncate(0)
            file.write(json.dumps(state).encode())


def _make_folder(limits: EndpointLimits, name: str) -> Path:
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    if limits.folder is not None:
        path = Path(limits.folder).expanduser() / digest
        path.mkdir(parents=True, exist_ok=True)
        return path
    path = private_folder("limits") / digest
    path.mkdir(exist_ok=True)
    return path
