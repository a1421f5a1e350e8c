"""A live container with a box in it: its end and its limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Any

from verl_agentic.base.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox import shipped_sources
from verl_agentic.sandbox.boxes import box_client
from verl_agentic.sandbox.boxes.box_client import BoxClient, BoxSession
from verl_agentic.sandbox.docker.attached_stream import StdoutReader, open_stdio
from verl_agentic.sandbox.docker.docker_engine import Engine, Shape
from verl_agentic.sandbox.inside import frames
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, SessionKind

InThread = Callable[..., Awaitable[Any]]
# Reads the modules of `inside` from stdin, so nothing of the host is mounted, and the image needs only Python.
_START = f"""
import os, sys
def take(count):
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            sys.exit("no box came in")
        data += piece
    return data
given = take(int.from_bytes(take(4), "little"))
{shipped_sources.IMPORTER}
from inside.container import main
main()
"""
_GREETING_S = 60.0


def entrypoint(python: str) -> list[str]:
    """Returns the command line of process 1."""
    return [python, "-I", "-c", _START]


class ContainerLife:
    """The container of a box (`box_client.Life`)."""

    def __init__(self, engine: Engine, in_thread: InThread, container: str) -> None:
        self.container = container
        self._engine, self._in_thread = engine, in_thread
        self._end: asyncio.Task[None] | None = None
        self._state: dict[str, Any] = {}
        self.reader: asyncio.StreamReader | None = None

    def kill(self) -> None:
        """Starts to end it; may be called again."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_task(self._remove_container())
            self._end.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def ended(self) -> None:
        """Waits until the container is removed. Raises SandboxError if the engine cannot remove it."""
        self.kill()
        assert self._end is not None
        await asyncio.shield(self._end)

    async def died_of_memory(self) -> bool:
        """Waits for its end; returns whether the kernel killed process 1 for memory."""
        await self.ended()
        return bool(self._state.get("OOMKilled"))

    async def _remove_container(self) -> None:
        if self.reader is not None and self.reader.at_eof():
            self._state = await self._in_thread(self._engine.state, self.container, is_ending=True)
        await self._in_thread(self._engine.remove, self.container)


class ContainerClient(BoxClient):
    """The trainer's end of a box in a container."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        life: ContainerLife,
        change_limits: Callable[[Limits], Awaitable[None]],
        is_exposed: bool = False,
    ) -> None:
        """Takes the connection and the container.

        Args:
            change_limits: awaited before code runs.
            is_exposed: whether code can reach process 1. Then the container is used for one execution only.
        """
        super().__init__(reader, writer, life=life)
        self._stream = writer
        self._container = life
        self._change_limits = change_limits
        self._is_exposed = is_exposed
        self._snapshots: list[IO[bytes]] = []
        self.left: list[str] = []
        """Remains of an execution with `fresh`; if there are any, the container is not used again."""

    @property
    def container_id(self) -> str:
        """The engine's id of the container."""
        return self._container.container

    @property
    def is_usable(self) -> bool:
        """True if it is in its initial state."""
        return not self.is_broken and not self.left

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        await self._change_limits(limits)
        return await super().run(command, limits=limits, fresh=fresh)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> BoxSession:
        await self._change_limits(limits)
        return await super().open_session(kind, limits=limits)

    async def snapshot(self) -> int:
        _, packed = await self._send_request({"op": "snapshot"})
        self._snapshots.append(await asyncio.to_thread(_store_snapshot, packed))
        return len(self._snapshots)

    async def reset(self, snapshot: int | None = None) -> None:
        if snapshot is not None and not 1 <= snapshot <= len(self._snapshots):
            raise ConfigError(f"snapshots 1 to {len(self._snapshots)} are there, got {snapshot}")
        snapshot = self._initial if snapshot is None else snapshot
        packed = b"" if snapshot is None else await asyncio.to_thread(_load_snapshot, self._snapshots[snapshot - 1])
        await self._send_request({"op": "reset"}, packed)

    async def close(self) -> None:
        for file in self._snapshots:
            file.close()
        self._snapshots.clear()
        await super().close()
        with contextlib.suppress(OSError):
            await self._stream.wait_closed()

    async def _send_request(
        self, request: dict[str, Any], blob: bytes = b"", *, timeout_s: float = 60.0, may_oom: bool = False
    ) -> tuple[dict[str, Any], bytes]:
        try:
            answer, data = await super()._send_request(request, blob, timeout_s=timeout_s, may_oom=may_oom)
        except SandboxError:
            self._died_of_memory = self.is_broken and await self._container.died_of_memory()
            if self._died_of_memory:
                return box_client.after_death(may_oom), b""
            raise
        self.left += answer.get("left", ())
        if self._is_exposed and request.get("fresh"):
            self.left.append("a process 1 that was within its reach")
        return answer, data


async def start_box(
    engine: Engine, in_thread: InThread, shape: Shape, *, imports: Sequence[str], expect_seccomp: bool
) -> ContainerClient:
    """Makes a container and the box in it.

    Raises:
        SandboxUnavailableError: the container is less isolated than requested, or its Python cannot run a box.
        SandboxError: the engine failed.
    """
    container, attached = await in_thread(engine.create, shape)
    life = ContainerLife(engine, in_thread, container)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(life.ended)
        reader, writer = await open_stdio(attached)
        stack.callback(writer.close)
        life.reader = reader
        setup = {"imports": list(imports), "disk_mb": shape.disk_mb, "env": box_client.ENVIRONMENT}
        sources = shipped_sources.sources()
        writer.write(len(sources).to_bytes(4, "little") + sources + frames.request(setup))
        await in_thread(engine.start, container)
        greeting = await _read_greeting(reader, expect_seccomp=expect_seccomp)
        stack.pop_all()
    changer = LimitChanger(engine, in_thread, container, shape)
    return ContainerClient(reader, writer, life=life, change_limits=changer, is_exposed=greeting["is_exposed"])


class LimitChanger:
    """Sets a container's limits for an execution; calls the engine only if they differ."""

    def __init__(self, engine: Engine, in_thread: InThread, container: str, shape: Shape) -> None:
        self._engine, self._in_thread, self._container = engine, in_thread, container
        self._spare_processes = shape.spare_processes
        self._runtime = shape.runtime
        self._now = (shape.memory_mb, shape.processes)

    async def __call__(self, limits: Limits) -> None:
        new_limits = memory_mb, processes = limits.memory_mb, limits.processes
        if new_limits != self._now:
            if self._runtime is not None:
                raise ConfigError(
                    f"the runtime {self._runtime!r} keeps the limits that a container starts with, got memory_mb="
                    f"{memory_mb}, processes={processes}; give these to DockerConfig, where they are {self._now}"
                )
            processes += self._spare_processes
            await self._in_thread(self._engine.limit, self._container, memory_mb=memory_mb, processes=processes)
            self._now = new_limits


async def _read_greeting(reader: StdoutReader, *, expect_seccomp: bool) -> dict[str, Any]:
    try:
        text_size, _ = frames.sizes(await asyncio.wait_for(reader.readexactly(frames.HEADER_SIZE), _GREETING_S))
        greeting = frames.parse(await asyncio.wait_for(reader.readexactly(text_size), _GREETING_S))
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, frames.FrameError, OSError) as cause:
        output = reader.stderr.decode("utf-8", "replace").strip()[-1000:] or type(cause).__name__
        raise SandboxUnavailableError(
            f"the container's Python cannot hold a box, got: {output}; use an image with Python >= 3.8"
        ) from cause
    if "error" in greeting:
        raise SandboxUnavailableError(f"the box in the container did not start, got: {greeting['error'].strip()}")
    expected = {"pid": 1, "capabilities": 0, "no_new_privileges": True, "writable": [], "missing": []}
    if expect_seccomp:
        expected["seccomp"] = "2"
    wrong = [f"{key} {greeting[key]!r}" for key, value in expected.items() if greeting[key] != value]
    if wrong or greeting["user"] == 0:
        raise SandboxUnavailableError(
            f"the container is not closed as it was ordered, got {', '.join(wrong) or 'the user root'}; "
            "use another engine or image"
        )
    return greeting


def _store_snapshot(packed: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile(prefix="snapshot_")  # noqa: SIM115
    file.write(packed)
    return file


def _load_snapshot(file: IO[bytes]) -> bytes:
    file.seek(0, os.SEEK_SET)
    return file.read()
