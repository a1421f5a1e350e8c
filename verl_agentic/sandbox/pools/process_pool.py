"""One pool for all event loops of a process.

The pool runs in the event loop of its own thread. So several loops can use it, a busy loop does not block sandboxes,
and the pool is closed at the end of the process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from verl_agentic.sandbox.interface import (
    Command,
    CommandResult,
    Limits,
    Sandbox,
    SandboxSession,
    SessionKind,
    TakenTree,
    Tree,
)
from verl_agentic.sandbox.isolation import DEFAULT_ISOLATION, Isolation
from verl_agentic.sandbox.lasting_threads import LastingThreads, start_no_more_threads
from verl_agentic.sandbox.pools.backends import make_backend, required
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

_T = TypeVar("_T")
_CLOSE_TIMEOUT_S = 10.0
_lock = threading.Lock()
_pools: dict[str, SharedPool] = {}


class SharedPool:
    """A `SandboxPool` that can be called from any event loop."""

    def __init__(self, backend: str, *, config: PoolConfig, at_least: Isolation, options: dict[str, Any]) -> None:
        """Makes the thread; the backend is started by the first call."""
        self._pool = SandboxPool(make_backend(backend, at_least=at_least, **options), config)
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(LastingThreads())
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-pool", daemon=True)
        self._thread.start()
        self._start_lock = asyncio.Lock()
        self._has_started = False

    async def run(self, command: Command, *, limits: Limits) -> CommandResult:
        """Runs a command with fresh folders; see `SandboxPool.run`."""
        return await self._run_in_loop(self._run_command(command, limits))

    @contextlib.asynccontextmanager
    async def lease(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> AsyncIterator[Sandbox]:
        """Provides a fresh sandbox for the block; see `SandboxPool.lease`."""
        stack = contextlib.AsyncExitStack()
        try:
            yield _SandboxThere(await self._run_in_loop(self._enter_lease(stack, trees, image)), self)
        finally:
            # Also if the call was cancelled, because the sandbox may just have arrived.
            await asyncio.shield(self._run_in_loop(stack.aclose()))

    async def metrics(self) -> dict[str, float]:

        async def read() -> dict[str, float]:
            return self._pool.metrics()

        return await self._run_in_loop(read())

    def close(self) -> None:
        """Ends all sandboxes, the backend and the thread."""
        if self._thread.is_alive():
            with contextlib.suppress(concurrent.futures.TimeoutError):
                asyncio.run_coroutine_threadsafe(self._pool.close(), self._loop).result(_CLOSE_TIMEOUT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_TIMEOUT_S)
            self._loop.close()

    async def _run_in_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs work in the pool's loop; cancelled with its caller. Returns its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _run_command(self, command: Command, limits: Limits) -> CommandResult:
        await self._start_pool()
        return await self._pool.run(command, limits=limits)

    async def _enter_lease(self, stack: contextlib.AsyncExitStack, trees: Sequence[Tree], image: str | None) -> Sandbox:
        await self._start_pool()
        return await stack.enter_async_context(self._pool.lease(trees=trees, image=image))

    async def _start_pool(self) -> None:
        async with self._start_lock:
            if not self._has_started:
                await self._pool.start()
                self._has_started = True


class _SandboxThere:
    """A sandbox in the pool's loop (`sandbox.interface.Sandbox`)."""

    def __init__(self, sandbox: Sandbox, pool: SharedPool) -> None:
        self._sandbox, self._pool = sandbox, pool

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        return await self._pool._run_in_loop(self._sandbox.run(command, limits=limits, fresh=fresh))

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        return _SessionThere(await self._pool._run_in_loop(self._sandbox.open_session(kind, limits=limits)), self._pool)

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        await self._pool._run_in_loop(self._sandbox.put_tree(files, at=at, modes=modes))

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        return await self._pool._run_in_loop(self._sandbox.take_tree(at, max_bytes=max_bytes, max_files=max_files))

    async def snapshot(self) -> int:
        return await self._pool._run_in_loop(self._sandbox.snapshot())

    async def reset(self, snapshot: int | None = None) -> None:
        await self._pool._run_in_loop(self._sandbox.reset(snapshot))

    async def close(self) -> None:
        await self._pool._run_in_loop(self._sandbox.close())


class _SessionThere:
    """A session in the pool's loop (`sandbox.interface.SandboxSession`)."""

    def __init__(self, session: SandboxSession, pool: SharedPool) -> None:
        self._session, self._pool = session, pool

    async def run(self, text: str, *, wall_s: float) -> CommandResult:
        return await self._pool._run_in_loop(self._session.run(text, wall_s=wall_s))

    async def close(self) -> None:
        await self._pool._run_in_loop(self._session.close())


def shared_pool(
    backend: str = "auto",
    *,
    at_least: Isolation | str | None = DEFAULT_ISOLATION,
    config: PoolConfig | None = None,
    **options: Any,
) -> SharedPool:
    """Returns the pool of this process for these arguments, always the same one.

    Args:
        backend: name of a backend, or `auto`.
        at_least: minimum isolation; None as in `backends.required`.
        config: size and warm sandboxes; by default two sandboxes per core.
        options: of the backend; see `make_backend`.

    Raises:
        ConfigError: the backend or an option is unknown, or the backend isolates less than `at_least`.
    """
    level = required(backend, at_least)
    config = config or PoolConfig(size=2 * (os.cpu_count() or 1))
    key = repr((backend, level, config, sorted(options.items())))
    with _lock:
        if key not in _pools:
            _pools[key] = SharedPool(backend, config=config, at_least=level, options=options)
        return _pools[key]


def open_pools() -> list[SharedPool]:
    """Returns the pools of this process."""
    with _lock:
        return list(_pools.values())


def _close_all() -> None:
    start_no_more_threads()
    while _pools:
        _pools.popitem()[1].close()


# Not `atexit`, which runs after the end of the threads that closing needs. `concurrent.futures.thread`, which ends
# them, is imported above, and the last registered function is called first.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
