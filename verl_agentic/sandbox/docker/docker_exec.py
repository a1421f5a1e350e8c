"""A container without Python: every command is an exec of the engine.

A shell of the image kills the processes that a command leaves running. They are not reaped, so each still counts as a
process. Single executions get a separate container.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from verl_agentic.base.deadlines import running_code
from verl_agentic.base.errors import ConfigError, SandboxError
from verl_agentic.sandbox.docker.attached_stream import STDERR, STDOUT, open_raw, open_stdio, read_piece
from verl_agentic.sandbox.docker.docker_engine import Engine, Shape
from verl_agentic.sandbox.docker.live_container import ContainerLife, InThread, LimitChanger
from verl_agentic.sandbox.inside.kept_output import Output
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, SandboxSession, SessionKind, TakenTree

_GRACE_S = 10.0
_CHUNK = 65_536
_SIGNAL_CODES = 128
COLD_ENTRYPOINT = ("cat",)  # waits for our connection to end
# $1 ... $3: CPU seconds, blocks of 512 bytes of a file, open files; then the program.
_RUN = (
    'ulimit -c 0; ulimit -t "$1"; ulimit -f "$2"; ulimit -n "$3"; shift 3; '
    'echo 1000 >/proc/self/oom_score_adj; exec "$@"'
)
_SWEEP = "kill -9 -1; cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null; true"
_ENVIRONMENT = {"HOME": "/work", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


class ColdContainer:
    """A running container for program executions."""

    def __init__(
        self,
        engine: Engine,
        in_thread: InThread,
        *,
        life: ContainerLife,
        writer: asyncio.StreamWriter,
        change_limits: LimitChanger,
    ) -> None:
        self._engine, self._in_thread, self._life, self._writer = engine, in_thread, life, writer
        self._change_limits = change_limits
        self._oom_kills = 0

    async def run(self, command: Command, limits: Limits) -> CommandResult:
        """Runs a program to its end and kills the processes that it leaves.

        Raises:
            ConfigError: the command needs Python in the image.
            SandboxError: the engine failed.
        """
        if command.argv is None or command.files or command.outputs:
            raise ConfigError("an image without Python only takes argv and stdin, got code, files or outputs; add it")
        sizes = (limits.cpu_s, limits.file_mb * 2048, limits.open_files)
        argv = ["sh", "-c", _RUN, "sh", *map(str, sizes), *command.argv]
        with running_code(limits.wall_s) as wall_s:
            return await self._run_argv(argv, command, replace(limits, wall_s=wall_s))

    async def _run_argv(self, argv: list[str], command: Command, limits: Limits) -> CommandResult:
        started = time.monotonic()
        try:
            await self._change_limits(limits)
            execution = await self._start_program(argv, {**_ENVIRONMENT, **command.env})
            timed_out = not await execution.pump(command.stdin, limits)
            wall_s = time.monotonic() - started
            oom = await self._kill_leftovers()
            code = await asyncio.wait_for(execution.exit_code(), _GRACE_S)
        except asyncio.TimeoutError as cause:
            self._life.kill()
            raise SandboxError("the container did not end a program, got no answer; it has been removed") from cause
        except BaseException:
            self._life.kill()
            raise
        stdout, stderr = execution.outputs[STDOUT], execution.outputs[STDERR]
        return CommandResult(
            stdout=b"".join(stdout.pieces).decode("utf-8", "replace"),
            stderr=b"".join(stderr.pieces).decode("utf-8", "replace"),
            exit_code=_signal_or_code(code),
            timed_out=timed_out,
            oom=oom,
            stdout_truncated=stdout.is_truncated,
            stderr_truncated=stderr.is_truncated,
            wall_s=wall_s,
        )

    @property
    def container_id(self) -> str:
        """The engine's id of the container."""
        return self._life.container

    async def close(self) -> None:
        self._writer.close()
        await self._life.ended()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _start_program(self, argv: list[str], environment: Mapping[str, str]) -> _Execution:
        name, attached = await self._in_thread(self._engine.execute, self._life.container, argv, dict(environment))
        reader, writer = await open_raw(attached)
        return _Execution(reader, writer, lambda: self._in_thread(self._engine.exit_code, name))

    async def _kill_leftovers(self) -> bool:
        """Kills all processes of the user except process 1; returns whether memory ran out since the last call."""
        sweep = await self._start_program(["sh", "-c", _SWEEP], {})
        await sweep.pump(b"", Limits(wall_s=_GRACE_S))
        lines = b"".join(sweep.outputs[STDOUT].pieces).decode().splitlines()
        counts = [line.split()[1] for line in lines if "oom_kill " in line]
        before, self._oom_kills = self._oom_kills, sum(map(int, counts))
        return self._oom_kills > before


class ColdSandbox:
    """A sandbox (`sandbox.interface.Sandbox`) for programs only."""

    def __init__(self, container: ColdContainer, *, make: Callable[[], Awaitable[ColdContainer]]) -> None:
        self._container, self._make = container, make
        self._lock = asyncio.Lock()

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        """Runs a program; see `Sandbox.run`. With `fresh`, in a new container."""
        async with self._lock:
            if not fresh:
                return await self._container.run(command, limits)
            container = await self._make()
            try:
                return await container.run(command, limits)
            finally:
                await asyncio.shield(container.close())

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        """Raises: this needs Python in the image."""
        raise ConfigError(f"sessions need an image with Python >= 3.8, got one without, for {kind!r}; add Python to it")

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        """Raises: this needs Python in the image."""
        raise ConfigError("trees need an image with Python >= 3.8, got one without; add Python to it")

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        """Raises: this needs Python in the image."""
        raise ConfigError("trees need an image with Python >= 3.8, got one without; add Python to it")

    async def snapshot(self) -> int:
        """Raises: this needs Python in the image."""
        raise ConfigError("snapshots need an image with Python >= 3.8, got one without; add Python to it")

    async def reset(self, snapshot: int | None = None) -> None:
        """Replaces the container."""
        if snapshot is not None:
            raise ConfigError(f"there are no snapshots without Python in the image, got {snapshot}; add Python to it")
        async with self._lock:
            await self._container.close()
            self._container = await self._make()

    async def close(self) -> None:
        await self._container.close()


class _Execution:
    """A program in a container, by the connection to its stdio."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ask_exit_code: Callable[[], Awaitable[Any]]
    ) -> None:
        self._reader, self._writer, self._ask_exit_code = reader, writer, ask_exit_code
        self.outputs: dict[int, Output] = {}

    async def pump(self, stdin: bytes, limits: Limits) -> bool:
        """Writes stdin and keeps output until the program ends; False if the deadline came first."""
        self.outputs = {STDOUT: Output(), STDERR: Output()}
        for output in self.outputs.values():
            output.begin(limits.output_bytes)
        feeding = asyncio.get_running_loop().create_task(self._feed_stdin(stdin))
        try:
            await asyncio.wait_for(self._read_output(), limits.wall_s)
        except asyncio.TimeoutError:
            return False
        finally:
            feeding.cancel()
            self._writer.close()
        return True

    async def exit_code(self) -> int:
        """Waits for the exit code."""
        while True:
            code = await self._ask_exit_code()
            if code is not None:
                return code
            await asyncio.sleep(0.02)

    async def _feed_stdin(self, stdin: bytes) -> None:
        with contextlib.suppress(OSError):  # it ended before it read all of stdin
            self._writer.write(stdin)
            await self._writer.drain()
            self._writer.write_eof()

    async def _read_output(self) -> None:
        while (piece := await read_piece(self._reader)) is not None:
            kind, remaining = piece
            while remaining > 0:
                data = await self._reader.read(min(remaining, _CHUNK))
                if not data:
                    return
                remaining -= len(data)
                self.outputs[kind].add(data)


async def start_cold(engine: Engine, in_thread: InThread, *, shape: Shape) -> ColdContainer:
    """Starts a container that ends with our connection. Raises SandboxError if the engine fails or `sh` is missing."""
    name, attached = await in_thread(engine.create, shape)
    life = ContainerLife(engine, in_thread, name)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(life.ended)
        _, writer = await open_stdio(attached)
        stack.callback(writer.close)
        changer = LimitChanger(engine, in_thread, name, shape)
        container = ColdContainer(engine, in_thread, life=life, writer=writer, change_limits=changer)
        await in_thread(engine.start, name)
        limits = Limits(wall_s=_GRACE_S, memory_mb=shape.memory_mb, processes=shape.processes)
        result = await container.run(Command(argv=["true"]), limits)
        if not result.ok:
            raise SandboxError(f"the image has no working sh, got exit code {result.exit_code}: {result.stderr[:500]}")
        stack.pop_all()
    return container


def _signal_or_code(code: int) -> int:
    """Converts a shell's 128 + n for signal n to -n."""
    return _SIGNAL_CODES - code if _SIGNAL_CODES < code < _SIGNAL_CODES + signal.NSIG else code
