"""`RemoteEnv`: an environment whose other half lives in an environment server."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.deadlines import left_s
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import AgenticError, EnvBusyError, EnvError, EnvUnavailableError, boundary
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import Action, Message, Observation, Reward, Tool, ToolResult
from verl_agentic.bridges.remote.link import EnvLink, result_of
from verl_agentic.bridges.remote.wire import error_of, to_messages, to_observation, to_reward
from verl_agentic.web.http_service import Attempts
from verl_agentic.web.per_loop import PerLoop

_AVOIDED_S = 30.0
"""Time for which a server that failed is tried last."""
_PAUSE_S = 0.5
logger = logging.getLogger(__name__)


class EnvClientConfig(Settings):
    """Options of the client."""

    urls: tuple[str, ...]
    """Addresses of equal servers."""
    token: str = field(default="", repr=False)
    """Token of the servers; empty: none."""
    wait_s: float = setting(90.0, above=0)
    """Time to get a session, in seconds, if all servers are full or cannot be reached."""
    batch_wait_s: float = setting(0.002, min=0)
    """Time that a call waits for calls of other episodes to share its request, in seconds."""


class _Fleet:
    """The servers of one configuration, in one event loop."""

    def __init__(self, config: EnvClientConfig) -> None:
        self._links = [EnvLink(url, token=config.token, batch_wait_s=config.batch_wait_s) for url in config.urls]

    def by_preference(self) -> list[EnvLink]:
        """Returns the servers: those that did not fail lately first, and of those the least loaded."""
        now = time.monotonic()
        return sorted(
            self._links, key=lambda link: (now - link.failed_at < _AVOIDED_S, len(link.sessions), random.random())
        )

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))


_fleets: PerLoop[EnvClientConfig, _Fleet] = PerLoop(_Fleet)


@dataclass(frozen=True)
class RemoteTool:
    """The schema of a tool of a remote environment; the environment itself answers its calls."""

    name: str
    schema: Mapping[str, Any]
    shows_own_schema = True
    """The server has written it as a prompt shows it."""

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Raises: only the environment can call it."""
        raise EnvError(f"the tool {self.name!r} is called by its environment, got a direct call; use step")


class RemoteEnv:
    """The client's half of an environment in a server.

    `state_key` and `guidance` exist from the start on if the environment has them.
    """

    def __init__(self, row: EnvRow, *, config: EnvClientConfig, env_config: Mapping[str, Any] | None = None) -> None:
        """Makes the client's half; `start` makes the other one.

        Args:
            row: of the episode.
            config: servers and patience.
            env_config: keyword arguments of the environment's `make_env`, added to those of the server.
        """
        self._config = config
        self._data = {"row": row, "config": dict(env_config or {})}
        self._link: EnvLink | None = None
        self._session, self._number = "", 0
        self._tools: Sequence[Tool] = ()

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools as the server last described them."""
        return self._tools

    async def start(self) -> tuple[Message, ...]:
        """Starts the environment on the server that has the most room.

        Raises:
            EnvBusyError, EnvUnavailableError: no server had a free session, or none could be reached, in time.
            AgenticError: what the environment raised.
        """
        result = await self._open_session()
        with _guard_reading():
            if result["guides"]:
                self.guidance = self._ask_guidance
            self._update_state(result)
            return to_messages(result["messages"])

    async def step(self, action: Action) -> Observation:
        """Carries out a turn in the environment."""
        result = await self._call_session("step", {"action": action, "left_s": left_s()})
        with _guard_reading():
            self._update_state(result)
            return to_observation(result["observation"])

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the reward of the environment."""
        result = await self._call_session("score", {"transcript": transcript, "left_s": left_s()})
        with _guard_reading():
            return to_reward(result)

    async def select(self, answers: Sequence[str]) -> int | None:
        """Returns the choice of the environment. Raises ConfigError if it cannot choose."""
        call = {"op": "select", "session": "", "data": {**self._data, "answers": list(answers)}}
        failure = None
        for link in (await _fleets.get(self._config)).by_preference():
            try:
                return result_of(await link.call(call))
            except EnvUnavailableError as cause:
                failure = cause
        raise failure or AssertionError

    async def close(self) -> None:
        """Closes the environment. If its server cannot be reached, the environment is gone, or its lease ends."""
        link, self._link = self._link, None
        if link is None:
            return
        link.drop(self._session)
        try:
            result_of(await link.call({"op": "close", "session": self._session, "data": {}}))
        except EnvUnavailableError as cause:
            logger.warning("a remote environment is left to its lease: %s", cause)

    async def _open_session(self) -> Any:
        """Returns the result of a start, after as many attempts as there is time for."""
        failure: AgenticError = EnvUnavailableError("no server was asked")
        wait_s, fleet = self._config.wait_s, await _fleets.get(self._config)
        async for _ in (attempts := Attempts(first_s=_PAUSE_S, max_s=_PAUSE_S, max_asked_s=wait_s, within_s=wait_s)):
            for link in fleet.by_preference():
                self._link, self._session, self._number = link, uuid.uuid4().hex, 0
                link.keep(self._session)
                try:
                    answer = await link.call(self._number_call("start", self._data))
                except EnvUnavailableError as cause:
                    failure = cause
                else:
                    if answer.get("error") != EnvBusyError.__name__:
                        return result_of(answer)
                    failure = error_of(answer)
                    attempts.asked_s = max(attempts.asked_s, float(answer.get("retry_after_s", 0.0)))
                link.drop(self._session)
                self._link = None
        raise failure

    async def _call_session(self, op: str, data: Mapping[str, Any]) -> Any:
        if self._link is None:
            raise EnvError(f"a remote environment was not started, or is closed, got {op}; start a new one")
        return result_of(await self._link.call(self._number_call(op, data)))

    def _number_call(self, op: str, data: Mapping[str, Any]) -> dict[str, Any]:
        call = {"op": op, "session": self._session, "number": self._number, "data": data}
        self._number += 1
        return call

    async def _ask_guidance(self, transcript: Transcript) -> str:
        return await self._call_session("guidance", {"transcript": transcript})

    def _update_state(self, result: Mapping[str, Any]) -> None:
        """Takes the tools and the state's key out of the result of a start or of a step."""
        if "tools" in result:
            self._tools = tuple(RemoteTool(schema["function"]["name"], schema) for schema in result["tools"])
        if "state_key" in result:
            key = result["state_key"]
            self.state_key = lambda: key


def _guard_reading() -> boundary:
    return boundary(EnvError, "reading the answer of the environment server")
