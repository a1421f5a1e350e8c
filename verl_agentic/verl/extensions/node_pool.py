"""One pool of sandboxes per node for all processes of a job there: a Ray actor, found by its name.

Every worker of a node makes a `NodePool` with the same arguments and gets the same actor, so that the pool's size is
the node's limit, however many workers there are. The actor outlives the worker that happened to make it, takes back
what a worker that died had leased, and ends when the job ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_agentic.base.deadlines import MIN_CODE_S, code_left_s, running_code, spend_code, waiting
from verl_agentic.base.errors import AgenticError, ConfigError, SandboxError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, SandboxSession, SessionKind, TakenTree, Tree
from verl_agentic.sandbox.isolation import DEFAULT_ISOLATION, Isolation
from verl_agentic.sandbox.pools.backends import make_backend, required
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool
from verl_agentic.verl.extensions.cpu.cpu_features import THREADS

NAMESPACE = "verl_agentic"
_JOB_POLL_S = 2.0
_CALLS_AT_ONCE = 10_000  # the pool bounds what runs; this only must not be the tighter limit


class NodePool:
    """The pool of this node. Cheap to make; used from any event loop."""

    def __init__(
        self,
        backend: str = "auto",
        *,
        at_least: Isolation | str | None = DEFAULT_ISOLATION,
        config: PoolConfig | None = None,
        **options: Any,
    ) -> None:
        """Names the pool; the first call of the first process starts it.

        Args:
            backend: name of a backend, or `auto`.
            at_least: weakest isolation that is allowed; None as in `backends.required`.
            config: size and warmth; by default two sandboxes per core of the node.
            options: of the backend; see `make_backend`.

        Raises:
            ConfigError: Ray does not run, no such backend or option, or the backend isolates less than `at_least`.
        """
        if not ray.is_initialized():
            raise ConfigError("the pool of a node needs Ray, got a process without it; call ray.init() first")
        level = required(backend, at_least)
        make_backend(backend, at_least=level, **options)  # wrong arguments are told here, not by the actor
        self._settings = _Settings(
            backend, level.name.lower(), config or PoolConfig(size=2 * (os.cpu_count() or 1)), options
        )
        self._actor: Any = None

    async def run(self, command: Command, *, limits: Limits) -> CommandResult:
        """Runs a command with fresh folders; see `SandboxPool.run`."""
        limits = replace(limits, wall_s=max(code_left_s(limits.wall_s), MIN_CODE_S))
        with waiting():  # only the actor sees when the run begins
            result = await self._call_actor("run", command, limits)
        spend_code(result.wall_s)
        return result

    @contextlib.asynccontextmanager
    async def lease(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> AsyncIterator[NodeSandbox]:
        """Gives a fresh sandbox for the block; see `SandboxPool.lease`."""
        lease = uuid.uuid4().hex
        try:
            with waiting():
                await self._call_actor("open", lease, os.getpid(), tuple(trees), image)
            yield NodeSandbox(self, lease)
        finally:
            # Also when the call was cancelled: the lease may have begun in that very moment.
            with contextlib.suppress(SandboxError):  # the actor has died, and the sandbox with it
                await asyncio.shield(self._call_actor("release", lease))

    async def metrics(self) -> dict[str, float]:
        """Returns those of the node's pool."""
        return await self._call_actor("metrics")

    async def _call_actor(self, method: str, *args: Any) -> Any:
        """Calls the actor; a call that is cancelled is cancelled there, too.

        Raises:
            SandboxError: the sandbox failed, or the actor has died: the next call makes a new one.
        """
        if self._actor is None:
            self._actor = await asyncio.to_thread(_find_or_make, self._settings)
        reference = getattr(self._actor, method).remote(*args)
        try:
            return await reference
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        except RayTaskError as error:
            cause = error.cause
            raise (
                cause if isinstance(cause, AgenticError) else SandboxError(f"the node's pool failed, got {cause}")
            ) from error
        except RayActorError as error:
            self._actor = None
            raise SandboxError(f"the pool of this node has died, got {error}; the next call makes a new one") from error


class NodeSandbox:
    """A leased sandbox in the node's actor (`sandbox.interface.Sandbox`)."""

    def __init__(self, pool: NodePool, lease: str) -> None:
        self._pool, self._lease = pool, lease

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        """Runs a command; see `Sandbox.run`."""
        with running_code(limits.wall_s) as wall_s:
            limits = replace(limits, wall_s=wall_s)
            return await self._pool._call_actor("run_in", self._lease, command, limits, fresh)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> NodeSession:
        """Starts an interpreter or a shell; see `Sandbox.open_session`."""
        return NodeSession(
            self._pool, self._lease, await self._pool._call_actor("open_session", self._lease, kind, limits)
        )

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        """Writes files into the working folder; see `Sandbox.put_tree`."""
        await self._pool._call_actor("put_tree", self._lease, files, at, modes)

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        """Reads the regular files of a folder; see `Sandbox.take_tree`."""
        return await self._pool._call_actor("take_tree", self._lease, at, max_bytes, max_files)

    async def snapshot(self) -> int:
        """Keeps the working folder; see `Sandbox.snapshot`."""
        return await self._pool._call_actor("snapshot", self._lease)

    async def reset(self, snapshot: int | None = None) -> None:
        """Brings the working folder back; see `Sandbox.reset`."""
        await self._pool._call_actor("reset", self._lease, snapshot)

    async def close(self) -> None:
        """Gives the sandbox back; the end of the lease does so anyway."""
        await self._pool._call_actor("release", self._lease)


class NodeSession:
    """A session of a leased sandbox (`sandbox.interface.SandboxSession`)."""

    def __init__(self, pool: NodePool, lease: str, number: int) -> None:
        self._pool, self._lease, self._number = pool, lease, number

    async def run(self, text: str, *, wall_s: float) -> CommandResult:
        """Runs a piece of source or a command line; see `SandboxSession.run`."""
        with running_code(wall_s) as allowed_s:
            return await self._pool._call_actor("run_in_session", self._lease, self._number, text, allowed_s)

    async def close(self) -> None:
        """Ends the session."""
        await self._pool._call_actor("close_session", self._lease, self._number)


@dataclass(frozen=True)
class _Settings:
    """Settings that identify a pool: equal settings share one pool."""

    backend: str
    at_least: str
    config: PoolConfig
    options: dict[str, Any]

    @property
    def digest(self) -> str:
        """A short name of them."""
        text = repr((self.backend, self.at_least, self.config, sorted(self.options.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass
class _Lease:
    """A sandbox that a process of the node holds."""

    sandbox: Any
    release: Callable[[], Awaitable[None]]
    sessions: dict[int, SandboxSession] = field(default_factory=dict)


class PoolActor:
    """The actor: a `SandboxPool`, and who holds what of it."""

    def __init__(self, settings: _Settings, job_id: str) -> None:
        """Takes the job whose end is its own."""
        backend = make_backend(settings.backend, at_least=settings.at_least, **settings.options)
        self._pool = SandboxPool(backend, settings.config)
        self._job_id = job_id
        self._start_lock = asyncio.Lock()
        self._has_started = False
        self._watch: asyncio.Task[None] | None = None
        self._leases: dict[str, _Lease] = {}
        self._opening: set[str] = set()
        self._numbers = itertools.count(1)

    async def run(self, command: Command, limits: Limits) -> CommandResult:
        """Runs a command with fresh folders."""
        await self._start_pool()
        return await self._pool.run(command, limits=limits)

    async def metrics(self) -> dict[str, float]:
        """Returns the pool's."""
        return self._pool.metrics()

    async def open(self, lease: str, pid: int, trees: Sequence[Tree] = (), image: str | None = None) -> None:
        """Leases a sandbox to a process of this node until it releases it or dies."""
        self._opening.add(lease)
        try:
            await self._start_pool()
            async with contextlib.AsyncExitStack() as stack:
                sandbox = await stack.enter_async_context(self._pool.lease(trees=trees, image=image))
                stack.callback(*_watch_process(pid, lambda: asyncio.ensure_future(self.release(lease))))
                if lease not in self._opening:
                    raise SandboxError("the lease was released before it began, got no sandbox; lease another one")
                self._leases[lease] = _Lease(sandbox, stack.pop_all().aclose)
        finally:
            self._opening.discard(lease)

    async def release(self, lease: str) -> None:
        """Ends a lease; one that has not begun yet will not, one that has ended is no error."""
        held = self._leases.pop(lease, None)
        if held is not None:
            await held.release()
        self._opening.discard(lease)

    async def run_in(self, lease: str, command: Command, limits: Limits, fresh: bool) -> CommandResult:
        """Runs a command in a leased sandbox."""
        return await self._find_lease(lease).sandbox.run(command, limits=limits, fresh=fresh)

    async def put_tree(self, lease: str, files: Mapping[str, bytes], at: str, modes: Mapping[str, int] | None) -> None:
        """Writes files into the working folder of a leased sandbox."""
        await self._find_lease(lease).sandbox.put_tree(files, at=at, modes=modes)

    async def take_tree(self, lease: str, at: str, max_bytes: int, max_files: int) -> TakenTree:
        """Reads the regular files of a folder of a leased sandbox."""
        return await self._find_lease(lease).sandbox.take_tree(at, max_bytes=max_bytes, max_files=max_files)

    async def snapshot(self, lease: str) -> int:
        """Keeps the working folder of a leased sandbox."""
        return await self._find_lease(lease).sandbox.snapshot()

    async def reset(self, lease: str, snapshot: int | None) -> None:
        """Brings the working folder of a leased sandbox back."""
        await self._find_lease(lease).sandbox.reset(snapshot)

    async def open_session(self, lease: str, kind: SessionKind, limits: Limits) -> int:
        """Opens a session in a leased sandbox; returns its number."""
        held = self._find_lease(lease)
        session = next(self._numbers)
        held.sessions[session] = await held.sandbox.open_session(kind, limits=limits)
        return session

    async def run_in_session(self, lease: str, session: int, text: str, wall_s: float) -> CommandResult:
        """Runs a piece in a session."""
        return await self._find_lease(lease).sessions[session].run(text, wall_s=wall_s)

    async def close_session(self, lease: str, session: int) -> None:
        """Ends a session; one whose lease has ended is no error."""
        held = self._leases.get(lease)
        if held is not None and session in held.sessions:
            await held.sessions.pop(session).close()

    def _find_lease(self, lease: str) -> _Lease:
        if lease not in self._leases:
            raise SandboxError(f"the lease has ended, got a call to sandbox {lease}; lease another one")
        return self._leases[lease]

    async def _start_pool(self) -> None:
        async with self._start_lock:
            if self._watch is None and self._job_id != THREADS:  # else it ends with the process
                self._watch = asyncio.create_task(self._end_with_job())
            if not self._has_started:
                await self._pool.start()
                self._has_started = True

    async def _end_with_job(self) -> None:
        await asyncio.to_thread(_wait_for_end_of, self._job_id)
        for lease in list(self._leases):
            await self.release(lease)
        await self._pool.close()
        ray.kill(ray.get_runtime_context().current_actor)


def _find_or_make(settings: _Settings) -> Any:
    """Returns the actor of this node and job for these settings."""
    context = ray.get_runtime_context()
    node_id, job_id = context.get_node_id(), context.get_job_id()
    return (
        ray.remote(PoolActor)
        .options(
            name=f"sandbox_pool_{job_id}_{node_id}_{settings.digest}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",  # else it would die with the worker that was the first to need it
            num_cpus=0,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        .remote(settings, job_id)
    )


def _wait_for_end_of(job_id: str) -> None:
    """Returns when a job has ended, as Ray's control store knows it (`ray.util.state` would need the dashboard)."""
    from ray._private.state import jobs

    while not any(job["JobID"] == job_id and job["IsDead"] for job in jobs()):
        time.sleep(_JOB_POLL_S)


def _watch_process(pid: int, on_end: Callable[[], object]) -> tuple[Callable[..., None], int]:
    """Has `on_end` called when a process of this node ends; returns how to stop that.

    Raises:
        SandboxError: it has ended already.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as cause:
        raise SandboxError(
            f"process {pid} wants a sandbox, got {cause} when looking for it; is it on this node?"
        ) from cause
    loop = asyncio.get_running_loop()

    def has_ended() -> None:
        loop.remove_reader(descriptor)  # readable for ever
        on_end()

    def stop(descriptor: int) -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)

    loop.add_reader(descriptor, has_ended)
    return stop, descriptor
