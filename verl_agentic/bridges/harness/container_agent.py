"""Agents in containers of a Docker engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import EnvError, SandboxError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.bridges.harness.agent import MAX_OUTPUT_BYTES, AgentFailedError, PolicyEndpoint, check_exit, task_of
from verl_agentic.sandbox.docker.attached_stream import StdoutReader, open_stdio
from verl_agentic.sandbox.docker.docker_engine import Engine, ProgramShape

T = TypeVar("T")
logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 16
_REMOVALS, _BETWEEN_S = 3, 1.0
_POLL_S = 0.1
_has_reaped = False


class ContainerConfig(Settings):
    """An agent that is the program of an image."""

    image: str
    """Name of the image; pulled if the engine lacks it."""
    command: Sequence[str] = ()
    """Command line; empty: that of the image."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, in addition to those of the session."""
    network: str = "bridge"
    """Network of the engine. The gateway listens at this machine's address in it; `host`: at loopback."""
    memory_mb: int = setting(2_048, min=6)
    """Memory limit, in MiB."""
    processes: int = setting(256, min=1)
    """Maximum number of processes and threads."""
    cpus: float = setting(1.0, above=0)
    """Processors that it may use."""
    capabilities: Sequence[str] = ()
    """Capabilities of Linux that it keeps, such as `CHOWN`; it has no other ones."""
    runtime: str | None = None
    """Runtime of the engine, such as `runsc` (gVisor); None: its default."""
    url: str | None = None
    """Address of the engine; None: DOCKER_HOST, or the default socket."""


@dataclass(frozen=True)
class ContainerAgent:
    """A container. It reads the task from stdin, and its result is what it writes to stdout."""

    config: ContainerConfig

    async def host(self) -> str:
        """Returns the address of this machine that the container can reach. Raises ConfigError if there is none."""
        engine = await in_thread(Engine, self.config.url)
        try:
            return await in_thread(engine.host_address, self.config.network)
        finally:
            engine.close()

    async def __call__(self, row: EnvRow, endpoint: PolicyEndpoint) -> str:
        engine = await _to_its_end(in_thread(Engine, self.config.url))
        try:
            await _to_its_end(in_thread(_prepare_engine, engine, self.config))
            return await self._run_container(engine, row, endpoint)
        finally:
            await _to_its_end(_remove_container(engine, group=endpoint.api_key))

    async def _run_container(self, engine: Engine, row: EnvRow, endpoint: PolicyEndpoint) -> str:
        config = self.config
        shape = ProgramShape(
            image=config.image,
            command=config.command,
            environment={**endpoint.variables(), **config.variables},
            memory_mb=config.memory_mb,
            processes=config.processes,
            cpus=config.cpus,
            network=config.network,
            runtime=config.runtime,
            capabilities=config.capabilities,
            group=endpoint.api_key,
        )
        with contextlib.ExitStack() as stack:
            container, reader, writer = await _to_its_end(_start_container(engine, shape, stack))
            writer.write(json.dumps(task_of(row)).encode())
            writer.write_eof()
            output = await _last_output(reader)
        while (state := await in_thread(engine.state, container)).get("Running"):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if "ExitCode" not in state:
            raise EnvError(f"the Docker engine lost the agent's container {container[:12]}; look at the engine's log")
        if state.get("OOMKilled"):
            raise AgentFailedError(f"the container used more than its memory_mb={config.memory_mb}")
        check_exit(state["ExitCode"], error=reader.stderr.decode("utf-8", "replace"))
        return output


async def _start_container(
    engine: Engine, shape: ProgramShape, stack: contextlib.ExitStack
) -> tuple[str, StdoutReader, asyncio.StreamWriter]:
    """Starts a container; returns its id and stdio, which `stack` closes."""
    container, attached = await in_thread(engine.create_program, shape)
    reader, writer = await open_stdio(attached)
    stack.callback(writer.close)
    await in_thread(engine.start, container)
    return container, reader, writer


def _prepare_engine(engine: Engine, config: ContainerConfig) -> None:
    """Checks the engine, provides the image and, once per process, removes containers of dead processes."""
    global _has_reaped
    engine.check(config.runtime)
    engine.provide_image(config.image)
    if not _has_reaped:
        engine.reap()
        _has_reaped = True


async def _last_output(reader: StdoutReader) -> str:
    output = bytearray()
    while chunk := await reader.read(_CHUNK_BYTES):
        output += chunk
        del output[:-MAX_OUTPUT_BYTES]
    return output.decode("utf-8", "replace")


async def _remove_container(engine: Engine, *, group: str) -> None:
    """Removes the container of an episode, also one whose creation was reported as failed, and leaves the engine."""
    for attempt in range(1, _REMOVALS + 1):
        try:
            await in_thread(engine.remove_group, group)
            break
        except SandboxError as cause:
            if attempt == _REMOVALS:
                logger.error("an agent's container could not be removed; the next run removes it: %s", cause)
            else:
                await asyncio.sleep(_BETWEEN_S)
    engine.close()


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of work that a cancellation must not leave half-done, such as a container without an owner."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved: asyncio would print it
        raise
