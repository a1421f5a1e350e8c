"""A rate limit that all processes of a machine share: requests and tokens per minute, and requests at once.

Reward workers are processes; a limit that each of them keeps for itself is exceeded as many times as there are workers.
Here the limit lives in a folder, without a server: a token bucket in a file behind a file lock, and one lock file for
each request that may be under way. The kernel gives locks back when their holder dies, so nothing is left behind.

Machines share no folder (a lock over a network file system is slow where it works at all): across nodes each node has
its share, `1 / nodes` of every limit, whether the other nodes use theirs or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from verl_agentic.errors import ConfigError
from verl_agentic.settings import Settings, setting

_POLL_S = 0.02
_BURST_S = 1.0


@dataclass(frozen=True, kw_only=True)
class EndpointLimits(Settings):
    """What an endpoint allows, for all nodes together."""

    requests_per_minute: float | None = setting(None, above=0)
    tokens_per_minute: float | None = setting(None, above=0)
    """Tokens of prompts and answers."""
    concurrency: int = setting(32, min=1)
    """Requests at once."""
    nodes: int = setting(1, min=1)
    """Machines that score; each gets its share."""
    folder: str | None = None
    """Where the limit lives: one of this machine's disks, the same for all its processes; by default one in the
    temporary folder, by endpoint."""

    def check_together(self) -> None:
        if self.concurrency < self.nodes:
            raise ConfigError(f"concurrency must be at least 1 per node, got {self.concurrency} for {self.nodes} nodes")


class Limiter:
    """The limit of one endpoint, as seen from one event loop.

    In any minute at most the limit and one second's worth of it are begun: a bucket holds what flows in within a second
    (at least one request), so that a pause is not followed by a flood. A request with more tokens than the bucket holds
    waits until it is full and leaves a debt, which those that come later wait for.
    """

    def __init__(self, limits: EndpointLimits, *, name: str) -> None:
        """Makes the folder.

        Args:
            limits: what is allowed.
            name: what the limit is for; the same name, the same limit.

        Raises:
            ConfigError: the folder is somebody else's.
        """
        self._folder = _folder(limits, name)
        self._slots = limits.concurrency // limits.nodes
        self._rates = {
            key: rate / 60 / limits.nodes
            for key, rate in (("requests", limits.requests_per_minute), ("tokens", limits.tokens_per_minute))
            if rate is not None
        }
        # Who waits here waits in a line: only its head looks at the files.
        self._line = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def request(self, num_tokens: int) -> AsyncIterator[None]:
        """Waits until a request of so many tokens may be sent; the block is the time in which it is under way."""
        async with self._line:
            slot = await self._slot()
            try:
                # Other processes change what is waited for: there is no event to wait for.
                while (wait_s := self._take(num_tokens)) > 0:  # noqa: ASYNC110
                    await asyncio.sleep(wait_s)
            except BaseException:
                slot.close()
                raise
        try:
            yield
        finally:
            slot.close()

    def correct(self, num_tokens: int) -> None:
        """Adds tokens that a request took beyond what was said before; negative for fewer."""
        if num_tokens and "tokens" in self._rates:
            with self._state() as state:
                state["tokens"] = state.get("tokens", 0.0) - num_tokens

    def pause(self, seconds: float) -> None:
        """Lets no process send anything for a while: the endpoint said that it has had enough."""
        with self._state() as state:
            state["not_before"] = max(state.get("not_before", 0.0), time.monotonic() + seconds)

    async def _slot(self) -> IO[bytes]:
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

    def _take(self, num_tokens: int) -> float:
        """Returns 0 when the request may begin and has been counted, else the seconds after which to ask again."""
        needs = {"requests": 1.0, "tokens": float(num_tokens)}
        with self._state() as state:
            now = time.monotonic()
            # A clock that has gone backwards is that of another boot.
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
    def _state(self) -> Iterator[dict[str, float]]:
        """Gives the state, locked for some microseconds, and writes what becomes of it."""
        with (self._folder / "state.json").open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            try:
                state = dict(json.loads(file.read()))
            except ValueError:
                state = {}
            yield state
            # Written in place: a renamed file would leave others with a lock on the old one.
            file.truncate(0)
            file.write(json.dumps(state).encode())


def _folder(limits: EndpointLimits, name: str) -> Path:
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    if limits.folder is not None:
        path = Path(limits.folder).expanduser() / digest
        path.mkdir(parents=True, exist_ok=True)
        return path
    root = Path(tempfile.gettempdir()) / f"verl_agentic-limits-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    # Its name can be guessed: whoever made it first could stop us, or read what we do.
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise ConfigError(f"the folder of rate limits must be our own, got {root}; name another by limit_folder")
    path = root / digest
    path.mkdir(exist_ok=True)
    return path
