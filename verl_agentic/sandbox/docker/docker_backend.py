"""The backend `docker`: hardened containers of an engine, with a box as process 1.

The box is that of the backend `namespaces`. It uses the container's stdin and stdout, so an execution in a warm
container takes milliseconds and no call to the engine. A container has no network, a read-only root, no capabilities,
its own non-root user, limits on memory, processes and processors, and a filter of system calls. It ends with the
trainer's connection, so a killed run leaves no code running.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from verl_agentic.base.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.sandbox.docker.docker_engine import Engine, Shape
from verl_agentic.sandbox.docker.docker_exec import COLD_ENTRYPOINT, ColdContainer, ColdSandbox, start_cold
from verl_agentic.sandbox.docker.live_container import ContainerClient, entrypoint, start_box
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
from verl_agentic.sandbox.lasting_threads import LastingThreads

_THREADS = 16  # that wait for the engine
_PYTHONS = ("python3", "python")
# For other runtimes: gVisor's kernel has dozens of threads and dies if it cannot start one.
_SPARE_PROCESSES, _SPARE_PROCESSES_OF_RUNTIME = 4, 256
_Made = TypeVar("_Made")
# fmt: off
_DEFAULT_IMPORTS = (
    "bisect", "collections", "datetime", "functools", "heapq", "io", "itertools", "json", "math", "random", "re",
    "string",
)
# fmt: on


class DockerConfig(Settings):
    """Containers of the backend `docker`."""

    image: str = "python:3.12-slim"
    """Name of the image; pulled if the engine lacks it. An image without Python >= 3.8 only runs commands with `argv`,
    through the engine's exec."""
    build: Path | None = None
    """Folder with a Dockerfile to build the image from, instead of `image`."""
    runtime: str | None = None
    """Runtime of the engine, such as `runsc` (gVisor); None for its default."""
    network: str = "none"
    """Network of the engine for executions whose limits allow it; `none` has only loopback."""
    hosts: Sequence[str] = ()
    """Names in a private network of all containers of the backend, in place of `network` (`sandbox_group`)."""
    memory_mb: int = setting(512, min=1)
    """Initial memory limit of a container, in MiB, process 1 included; an execution's limits may change it."""
    processes: int = setting(64, min=1)
    """Initial process limit of a container; an execution's limits may change it."""
    cpus: float = setting(1.0, above=0)
    """Processors that a container may use."""
    disk_mb: int = setting(64, min=1)
    """Size of the working folder, of `/tmp` and of `/dev/shm`, each, in MiB; counts as memory."""
    imports: Sequence[str] = _DEFAULT_IMPORTS
    """Modules that are loaded before the first execution."""
    url: str | None = None
    """Address of the engine; None takes DOCKER_HOST, or the default socket."""

    def check_together(self) -> None:
        if self.network == "host":
            raise ConfigError("network must not be the host's, got 'host'; make a network in the engine and name it")
        if self.hosts and self.network != "none":
            raise ConfigError(f"a private network is no network of the engine, got network={self.network!r} with hosts")


class DockerBackend:
    """Sandboxes that are containers."""

    name = "docker"

    def __init__(self, config: DockerConfig | None = None) -> None:
        self._config = config or DockerConfig()
        self._group = secrets.token_hex(8)
        self._threads: ThreadPoolExecutor | None = None
        self._engine: Engine | None = None
        self._image = self._config.image
        self._network: ContainerClient | ColdContainer | None = None
        self._pythons: dict[str, str | None] = {}
        self._lock = asyncio.Lock()
        self._makes: set[asyncio.Task[Any]] = set()

    @property
    def isolation(self) -> str:
        """`own_kernel` under a runtime such as gVisor's, else `container`."""
        return "container" if self._config.runtime is None else "own_kernel"

    async def start(self) -> None:
        """Connects, provides the image, removes remains of killed runs, and tests a first container.

        Raises:
            MissingDependencyError: the Docker SDK is not installed.
            SandboxUnavailableError: no engine answers, it cannot limit containers, or the image cannot be used.
        """
        if self._engine is not None:
            return
        self._threads = LastingThreads(_THREADS, thread_name_prefix="docker")
        try:
            engine = self._engine = await self._in_thread(Engine, self._config.url)
            await self._in_thread(engine.check, self._config.runtime)
            if self._config.build is not None:
                self._image = await self._in_thread(engine.build_image, Path(self._config.build))
            await self._in_thread(engine.reap)
            python = await self._provide_image(self._image)
            if self._config.hosts:  # no code runs in this one, so that none can end the network
                image = self._image
                self._network = await (self._make_cold(image) if python is None else self._make_box(image, python))
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> Sandbox:
        """Makes a container; see `Backend.create`. A new image is pulled and tested first.

        Raises:
            SandboxError: the backend is not started, the image cannot be used, or the engine failed.
        """
        chosen = image or self._image
        python = await self._provide_image(chosen)
        if python is None:
            if trees:
                raise ConfigError(f"trees need an image with Python >= 3.8, got {chosen!r}; add Python to it")
            make_cold = functools.partial(self._make_cold, chosen)
            return ColdSandbox(await make_cold(), make=make_cold)
        make = functools.partial(self._make_box, chosen, python)
        sandbox = DockerSandbox(await make(), make=make)
        try:
            await sandbox.place(trees)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def close(self) -> None:
        if self._makes:
            await asyncio.gather(*self._makes, return_exceptions=True)
        network, self._network = self._network, None
        if network is not None:
            with contextlib.suppress(SandboxError):
                await network.close()
        engine, self._engine = self._engine, None
        threads, self._threads = self._threads, None
        try:
            if engine is not None:
                assert threads is not None
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(threads, engine.remove_group, self._group)
                engine.close()
        finally:
            if threads is not None:
                threads.shutdown(wait=False)

    async def _provide_image(self, image: str) -> str | None:
        """Pulls and tests an image once; returns the name of its Python, or None if it has none."""
        if self._engine is None:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        async with self._lock:
            if image not in self._pythons:
                await self._in_thread(self._engine.provide_image, image)
                self._pythons[image] = await self._find_python(image)
            return self._pythons[image]

    async def _find_python(self, image: str) -> str | None:
        reasons = []
        for python in _PYTHONS:
            try:
                await (await self._make_box(image, python)).close()
            except SandboxUnavailableError:
                raise  # it exists, but cannot be used
            except SandboxError as cause:
                reasons.append(str(cause))
            else:
                return python
        try:
            await (await self._make_cold(image)).close()
        except SandboxError as cause:
            raise SandboxUnavailableError(
                f"the image {image!r} can hold neither a box nor a shell, got: {reasons[0]}, and: {cause}; "
                "use an image with Python >= 3.8, or with sh and cat"
            ) from cause
        return None

    async def _make_box(self, image: str, python: str) -> ContainerClient:
        return await self._make_container(
            functools.partial(
                start_box,
                shape=self._build_shape(image, entrypoint(python)),
                imports=self._config.imports,
                expect_seccomp=self._config.runtime is None,  # other runtimes have their own kernel
            )
        )

    async def _make_cold(self, image: str) -> Any:
        return await self._make_container(
            functools.partial(start_cold, shape=self._build_shape(image, COLD_ENTRYPOINT))
        )

    async def _make_container(self, start: Callable[..., Awaitable[_Made]]) -> _Made:
        """Finishes making a container even if the caller is cancelled, then removes it, so that none is leaked."""
        if self._engine is None:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        work = start(self._engine, self._in_thread)
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._makes.add(task)
        task.add_done_callback(self._makes.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            closing = asyncio.ensure_future(_close_made(task))
            self._makes.add(closing)
            closing.add_done_callback(self._makes.discard)
            raise

    def _build_shape(self, image: str, entry: Sequence[str]) -> Shape:
        config = self._config
        return Shape(
            image=image,
            entrypoint=entry,
            memory_mb=config.memory_mb,
            processes=config.processes,
            spare_processes=_SPARE_PROCESSES if config.runtime is None else _SPARE_PROCESSES_OF_RUNTIME,
            cpus=config.cpus,
            disk_mb=config.disk_mb,
            network=config.network if self._network is None else f"container:{self._network.container_id}",
            hosts=config.hosts if self._network is None else (),
            runtime=config.runtime,
            group=self._group,
        )

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        if self._threads is None:
            raise SandboxError("the backend is closed, got a call to it; start it again")
        call = functools.partial(function, *args, **keywords)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class DockerSandbox:
    """A container for an episode, or successive containers for single executions (`sandbox.interface.Sandbox`)."""

    def __init__(self, box: ContainerClient, *, make: Callable[[], Awaitable[ContainerClient]]) -> None:
        """Takes the first container and a factory of further ones."""
        self._box, self._make_container = box, make
        self._apart: ContainerClient | None = None
        self._has_state = self._is_closed = False
        self._lock = asyncio.Lock()

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        """Runs a command; see `Sandbox.run`.

        With `fresh`, the container is cleaned and verified afterwards, or else replaced before the next execution. If
        the sandbox has files or sessions of an episode, the command runs in another container.
        """
        async with self._lock:
            if fresh and self._has_state:
                self._apart = await self._ensure_usable(self._apart)
                box = self._apart
            else:
                box = await self._ensure_own_container()
                self._has_state |= not fresh
            return await box.run(command, limits=limits, fresh=fresh)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        async with self._lock:
            box = await self._ensure_own_container()
            self._has_state = True
            return await box.open_session(kind, limits=limits)

    async def place(self, trees: Sequence[Tree]) -> None:
        """Puts trees into the first container; see `BoxClient.place`."""
        if trees:
            async with self._lock:
                self._has_state = True
                await self._box.place(trees)

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        async with self._lock:
            box = await self._ensure_own_container()
            self._has_state = True
            await box.put_tree(files, at=at, modes=modes)

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        async with self._lock:
            return await (await self._ensure_own_container()).take_tree(at, max_bytes=max_bytes, max_files=max_files)

    async def snapshot(self) -> int:
        async with self._lock:
            box = await self._ensure_own_container()
            self._has_state = True
            return await box.snapshot()

    async def reset(self, snapshot: int | None = None) -> None:
        async with self._lock:
            await (await self._ensure_own_container()).reset(snapshot)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(box.close() for box in (self._box, self._apart) if box is not None))

    async def _ensure_own_container(self) -> ContainerClient:
        """Returns the sandbox's container; replaces an unused one that is not in its initial state."""
        if not self._has_state:
            self._box = await self._ensure_usable(self._box)
        return self._box

    async def _ensure_usable(self, box: ContainerClient | None) -> ContainerClient:
        if self._is_closed:
            raise SandboxError("the sandbox is closed, got a call to it; make a new one")
        if box is not None and box.is_usable:
            return box
        if box is not None:
            await box.close()
        container = await self._make_container()
        if self._is_closed:
            await container.close()
            raise SandboxError("the sandbox was closed during a call, got no result; make a new one")
        return container


async def _close_made(task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(Exception):
        await (await task).close()
