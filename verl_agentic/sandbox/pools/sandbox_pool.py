"""A bounded, fair pool of warm sandboxes over any backend."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.deadlines import running_code, waiting
from verl_agentic.base.errors import ConfigError, SandboxBusyError, SandboxError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.sandbox.interface import Backend, Command, CommandResult, Limits, Sandbox, Tree

_LATENCIES = 4096  # newest that percentiles are taken of


class PoolConfig(Settings):
    """Size and limits of a pool."""

    size: int = setting(8, min=1)
    """Maximum number of sandboxes, in use or warm."""
    warm: int = setting(2, min=0)
    """Number of sandboxes made in advance."""
    max_waiting: int = 10_000
    """Maximum number of waiting callers; more fail at once."""
    max_uses: int = setting(1_000, min=1)
    """Single executions after which a sandbox is replaced."""
    wait_timeout_s: float = setting(300.0, above=0)
    """Maximum time, in seconds, in which no sandbox comes free for anyone who waits. The wait counts against no other
    deadline: many slow executions make all wait longer, and fail nobody."""

    def check_together(self) -> None:
        if self.warm > self.size:
            raise ConfigError(f"warm must be at most size, got {self.warm} of {self.size}; lower it")


@dataclass
class _Seat:
    """A sandbox for single executions, and its number of uses."""

    sandbox: Sandbox
    uses: int = 0


class SandboxPool:
    """Leases sandboxes to episodes, and runs single commands in shared ones, each with fresh folders."""

    def __init__(self, backend: Backend, config: PoolConfig | None = None) -> None:
        self._backend = backend
        self._config = config or PoolConfig()
        self._free_places = self._config.size
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._seats: deque[_Seat] = deque()
        self._warm: deque[Sandbox] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = self._running = 0
        self._counts = {"completed": 0, "failed": 0, "refused": 0, "created": 0, "retired": 0}
        self._wait_s: deque[float] = deque(maxlen=_LATENCIES)
        self._run_s: deque[float] = deque(maxlen=_LATENCIES)
        self._is_closed = False
        self._moved_at = 0.0  # when a place came free

    async def start(self) -> None:
        """Starts the backend and the warm sandboxes. Raises SandboxError if the backend cannot work here."""
        await self._backend.start()
        self._refill_warm()

    async def run(self, command: Command, *, limits: Limits) -> CommandResult:
        """Runs a command with fresh folders; waits for its turn.

        Raises:
            SandboxBusyError: too many wait already, or no sandbox came free for too long.
            SandboxError: the sandbox, not the code, failed.
        """
        await self._take_place()
        try:
            seat = self._free_seat() or _Seat(await self._take_sandbox())
            try:
                result = await self._run_timed(seat.sandbox, command, limits)
            except BaseException:
                self._discard_sandbox(seat.sandbox)
                raise
            seat.uses += 1
            if not _is_usable(seat.sandbox) or seat.uses >= self._config.max_uses or self._is_closed:
                self._discard_sandbox(seat.sandbox)
            else:
                self._seats.append(seat)
            return result
        finally:
            self._give_place()

    @contextlib.asynccontextmanager
    async def lease(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> AsyncIterator[Sandbox]:
        """Provides a fresh sandbox for the block; it is never reused. One with trees or an image is never warm.

        Args:
            trees: folders that it begins with; see `Backend.create`.
            image: image of the container, for the backend `docker`.

        Raises:
            ConfigError: the backend cannot have the trees or the image.
            SandboxBusyError: too many wait already, or no sandbox came free for too long.
            SandboxError: no sandbox could be made.
        """
        await self._take_place()
        try:
            sandbox = await (self._create_sandbox(trees=trees, image=image) if trees or image else self._take_sandbox())
            self._running += 1
            try:
                yield sandbox
            finally:
                self._running -= 1
                with running_code(0.0):  # code decides how much there is to remove
                    await asyncio.shield(sandbox.close())
        finally:
            self._give_place()

    async def close(self) -> None:
        """Ends all sandboxes, including leased ones, and the backend."""
        self._is_closed = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(SandboxError("the pool was closed, got a call that still waited; start a new one"))
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        sandboxes = [*self._warm, *(seat.sandbox for seat in self._seats)]
        self._warm.clear()
        self._seats.clear()
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes), return_exceptions=True)
        await self._backend.close()

    def metrics(self) -> dict[str, float]:
        """Returns current waiting and running counts, totals, and percentiles of waits and runs in seconds."""
        return {
            "waiting": float(len(self._waiting)),
            "starting": float(self._starting),
            "running": float(self._running),
            "warm": float(len(self._warm)),
            **{name: float(count) for name, count in self._counts.items()},
            **_compute_percentiles("wait_s", self._wait_s),
            **_compute_percentiles("run_s", self._run_s),
        }

    async def _run_timed(self, sandbox: Sandbox, command: Command, limits: Limits) -> CommandResult:
        started = time.monotonic()
        self._running += 1
        try:
            result = await sandbox.run(command, limits=limits, fresh=True)
        except SandboxError:
            self._counts["failed"] += 1
            raise
        finally:
            self._running -= 1
        self._counts["completed"] += 1
        self._run_s.append(time.monotonic() - started)
        return result

    async def _take_place(self) -> None:
        """Waits for a place, first come, first served."""
        if self._is_closed:
            raise SandboxError("the pool is closed, got a call to it; start a new one")
        started = time.monotonic()
        if self._free_places > 0:
            self._free_places -= 1
        elif len(self._waiting) >= self._config.max_waiting:
            self._counts["refused"] += 1
            raise SandboxBusyError(
                f"{len(self._waiting)} calls wait for one of {self._config.size} sandboxes, got one more; "
                "send fewer at a time, or raise size or max_waiting"
            )
        else:
            await self._wait_in_line()
        self._wait_s.append(time.monotonic() - started)

    async def _wait_in_line(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            with waiting():
                await self._wait_while_others_come(waiter)
        except asyncio.CancelledError:
            if not waiter.cancel() and waiter.exception() is None:
                self._give_place()  # it arrived when the caller was cancelled
            raise
        if not waiter.done():
            waiter.cancel()
            self._counts["refused"] += 1
            raise SandboxBusyError(
                f"no sandbox came free within {self._config.wait_timeout_s:g} s; raise size, or shorten the executions"
            )
        waiter.result()

    async def _wait_while_others_come(self, waiter: asyncio.Future[None]) -> None:
        """Waits for a place, however long the line is, as long as it moves."""
        began = time.monotonic()
        while not waiter.done():
            left_s = max(self._moved_at, began) + self._config.wait_timeout_s - time.monotonic()
            if left_s <= 0:
                return
            await asyncio.wait([waiter], timeout=left_s)

    def _give_place(self) -> None:
        self._moved_at = time.monotonic()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free_places += 1

    def _free_seat(self) -> _Seat | None:
        """Returns a free seat; drops dead ones."""
        while self._seats:
            seat = self._seats.popleft()
            if _is_usable(seat.sandbox):
                return seat
            self._discard_sandbox(seat.sandbox)
        return None

    async def _take_sandbox(self) -> Sandbox:
        """Returns a warm or new sandbox, and starts making the next one."""
        while self._warm:
            sandbox = self._warm.popleft()
            if _is_usable(sandbox):
                break
            self._discard_sandbox(sandbox)
        else:
            sandbox = await self._create_sandbox()
        self._refill_warm()
        return sandbox

    async def _create_sandbox(self, **options: Any) -> Sandbox:
        self._starting += 1
        try:
            sandbox = await self._backend.create(**options)
        except SandboxError:
            self._counts["failed"] += 1
            raise
        finally:
            self._starting -= 1
        self._counts["created"] += 1
        return sandbox

    def _refill_warm(self) -> None:
        missing = self._config.warm - len(self._warm) - sum(task.get_name() == "warm" for task in self._tasks)
        for _ in range(0 if self._is_closed else missing):
            self._spawn_task(self._warm_up(), "warm")

    async def _warm_up(self) -> None:
        with contextlib.suppress(SandboxError):  # counted only; a caller that needs a sandbox gets the error
            sandbox = await self._create_sandbox()
            if self._is_closed:
                await sandbox.close()
            else:
                self._warm.append(sandbox)

    def _discard_sandbox(self, sandbox: Sandbox) -> None:
        self._counts["retired"] += 1
        self._spawn_task(sandbox.close(), "close")

    def _spawn_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_usable(sandbox: Sandbox) -> bool:
    """False if it has died."""
    return getattr(sandbox, "is_usable", True)


def _compute_percentiles(name: str, values: deque[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"{name}_p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0
        for share in (50, 95, 99)
    }
