"""Kinds of agents: functions, commands, servers, and containers (`container_agent`)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import logging
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow
from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.registry import load_address
from verl_agentic.base.settings import read_settings
from verl_agentic.bridges.harness.agent import (
    MAX_OUTPUT_BYTES,
    SESSION_VARIABLE,
    SHOWN_CHARS,
    Agent,
    AgentFailedError,
    PolicyEndpoint,
    check_exit,
    task_of,
)
from verl_agentic.bridges.harness.container_agent import ContainerAgent, ContainerConfig
from verl_agentic.sandbox.boxes import reaper

logger = logging.getLogger(__name__)
_UNAVAILABLE = (429, 502, 503, 504)
_TERMINATE_S = 2.0
_VARIABLES = ("PATH", "HOME", "LANG")
"""Environment variables of this process that a command gets; others may be secrets."""
_FOLDER_VARIABLE = "VERL_AGENTIC_FOLDER"
"""Environment variable of a command: a folder that is removed after the episode."""


AgentForm = str | Sequence[str] | Mapping[str, Any] | Callable[..., Any]


def load_agent(agent: AgentForm, *, variables: Sequence[str] = ()) -> Agent:
    """Returns the agent that a configuration names.

    Args:
        agent: a function, or `module:function` or `path.py:function` of one; an `http://` or `https://` address; a
            command, as a list or as one text; or a section of `ContainerConfig`.
        variables: names of environment variables that a command gets.

    Raises:
        ConfigError: it is none of them, or variables are named for an agent that is no command.
    """
    loaded = _load_agent(agent, variables)
    if variables and not isinstance(loaded, _CommandAgent):
        raise ConfigError(
            f"agent_variables are of commands, got {list(variables)} for {agent!r}; leave them out, or use `variables` "
            "of the container"
        )
    return loaded


def _load_agent(agent: AgentForm, variables: Sequence[str]) -> Agent:
    if callable(agent):
        return _FunctionAgent(agent)
    if isinstance(agent, Mapping):
        return ContainerAgent(read_settings(ContainerConfig, agent, section="agentic.env_config.agent"))
    if isinstance(agent, str) and agent.startswith(("http://", "https://")):
        return _RemoteAgent(agent)
    if isinstance(agent, str):
        words = shlex.split(agent)
        if len(words) == 1 and ":" in agent:
            return _FunctionAgent(load_address(agent, what="agent"))
        agent = words
    if not agent or not all(isinstance(word, str) for word in agent):
        raise ConfigError(
            f"agent must be module:function, path.py:function, a command, an http address or a section with an image, "
            f"got {agent!r}"
        )
    return _CommandAgent(tuple(agent), tuple(variables))


@dataclass(frozen=True)
class _FunctionAgent:
    """A function `agent(row, endpoint)`. A coroutine runs in the event loop, others in a thread of their own."""

    function: Callable[..., Any]

    async def __call__(self, row: EnvRow, endpoint: PolicyEndpoint) -> Any:
        try:
            if inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(type(self.function).__call__):
                return await self.function(row, endpoint)
            return await in_thread(self.function, row, endpoint)
        except SystemExit as cause:  # asyncio would end the loop, and all that runs in it
            raise AgentFailedError(f"the agent wanted to end the process, got SystemExit: {cause}") from cause


@dataclass(frozen=True)
class _CommandAgent:
    """A program. It reads the task from stdin, and its result is what it writes to stdout."""

    argv: tuple[str, ...]
    variables: tuple[str, ...] = ()

    async def __call__(self, row: EnvRow, endpoint: PolicyEndpoint) -> str:
        _warn_of_user()
        folder = await asyncio.to_thread(reaper.make_folder, "agent")
        try:
            return await self._run_program(row, endpoint, folder)
        finally:
            await asyncio.shield(asyncio.ensure_future(_clean_up(endpoint.api_key, folder)))

    async def _run_program(self, row: EnvRow, endpoint: PolicyEndpoint, folder: Path) -> str:
        passed = {name: os.environ[name] for name in (*_VARIABLES, *self.variables) if name in os.environ}
        variables = {**passed, **endpoint.variables(), _FOLDER_VARIABLE: str(folder)}
        (folder / "task.json").write_text(json.dumps(task_of(row)), encoding="utf-8")
        # Files, because a pipe is open as long as any process has it.
        with (
            (folder / "task.json").open("rb") as task,
            (folder / "stdout").open("wb") as out,
            (folder / "stderr").open("wb") as err,
        ):
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.argv, stdin=task, stdout=out, stderr=err, env=variables, start_new_session=True
                )
            except OSError as cause:
                raise EnvError(
                    f"the agent {self.argv[0]!r} cannot be started, got {cause}; fix agentic.env_config.agent"
                ) from cause
        try:
            code = await process.wait()
        finally:
            await asyncio.shield(asyncio.ensure_future(_terminate_process(process)))
        check_exit(code, error=_end_of(folder / "stderr"))
        return _end_of(folder / "stdout")


@dataclass(frozen=True)
class _RemoteAgent:
    """A server that runs agents: it gets the task and the address of the session, and returns the result."""

    url: str

    async def __call__(self, row: EnvRow, endpoint: PolicyEndpoint) -> Any:
        with needs_extra("serve", what="an agent behind an address"):
            import httpx
        session = {"url": endpoint.url, "base_url": endpoint.base_url, "api_key": endpoint.api_key}
        async with httpx.AsyncClient(timeout=None) as client:
            answer = await client.post(self.url, json={**task_of(row), **session, "model": endpoint.model})
        excerpt = answer.text[:SHOWN_CHARS]
        if answer.status_code in _UNAVAILABLE:
            raise EnvError(f"the agent's server is not available, got {answer.status_code}: {excerpt}")
        if answer.status_code != 200:
            raise AgentFailedError(f"the agent's server answered {answer.status_code}: {excerpt}")
        return answer.json()


@functools.cache
def _warn_of_user() -> None:
    logger.warning(
        "agents run as programs of this user: they can read this user's files, and the keys of each other's sessions. "
        "Run agents that you do not trust, or whose policy may run commands, in containers"
    )


def _end_of(path: Path) -> str:
    """Returns the end of an output."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_OUTPUT_BYTES))
        return file.read().decode(errors="replace")


async def _terminate_process(process: asyncio.subprocess.Process) -> None:
    """Ends a program and its group. It may end by itself first: `docker run` passes SIGTERM on to its container."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _TERMINATE_S)
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(pid, number)


async def _clean_up(session: str, folder: Path) -> None:
    """Ends processes of the session that have left its group, and removes its folder."""
    await asyncio.to_thread(_kill_marked, session)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _kill_marked(session: str) -> None:
    mark = f"{SESSION_VARIABLE}={session}".encode()
    for _ in range(3):  # a process may fork meanwhile
        marked = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has_mark(pid, mark)]
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or it has ended
        return False
