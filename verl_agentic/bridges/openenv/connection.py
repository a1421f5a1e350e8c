"""A session with an OpenEnv server, over its WebSocket.

Verified against openenv-core 0.3.0 (`core/env_server/http_server.py`, `types.py`, `mcp_types.py`, and its client): one
connection to `/ws` is one environment; messages `{"type": "reset" | "step" | "state" | "close", "data": ...}`,
answers `{"type": "observation" | "state", "data": ...}` or `{"type": "error", "data": {"message", "code"}}`. The JSON
schema of actions is in `GET /schema`. Servers of tools take the actions `list_tools` and `call_tool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import EnvBusyError, EnvError, EnvUnavailableError, boundary
from verl_agentic.web.http_service import Attempts, HttpService

_CONNECT_S = 10.0
_CLOSE_S = 5.0
_PAUSE_S = 0.5
_MAX_MESSAGE_BYTES = 100 * 2**20
_FULL = "CAPACITY_REACHED"


class RefusedActionError(EnvError):
    """The server could not carry out an action; the message says why."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class OpenEnvConnection:
    """One environment of a server."""

    def __init__(self, url: str) -> None:
        """Makes the client's end; `open` connects.

        Args:
            url: of the server, `http://`, `https://`, `ws://` or `wss://`.
        """
        self._http_url = url.rstrip("/").replace("ws", "http", 1) if url.startswith("ws") else url.rstrip("/")
        self._socket: Any = None
        self._turn = asyncio.Lock()
        self._num_unread = 0
        """Answers to calls that were cancelled while they waited."""

    async def open(self, first: Mapping[str, Any], *, wait_s: float) -> dict[str, Any]:
        """Connects and returns the answer to a first message; waits while the server is full or cannot be reached.

        Raises:
            EnvBusyError, EnvUnavailableError: it was, until the end.
            EnvError: the server cannot make the environment.
        """
        failure: EnvError = EnvUnavailableError(self._http_url)
        async for _ in Attempts(first_s=_PAUSE_S, max_s=_PAUSE_S, within_s=wait_s):
            try:
                await self._open_socket()
                return await self.ask(first)
            except RefusedActionError as cause:
                if cause.code != _FULL:
                    raise
                failure = EnvBusyError(
                    f"the OpenEnv server {self._http_url} has no free session, got {cause}; raise its "
                    "max_concurrent_envs, or add servers"
                )
            except EnvUnavailableError as cause:
                failure = cause
            await self.close()
        raise failure

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a message and returns the `data` of its answer.

        Raises:
            RefusedActionError: the answer is an error.
            EnvUnavailableError: the connection is lost, and with it the environment.
        """
        from websockets.exceptions import ConnectionClosed, WebSocketException

        async with self._turn:
            if self._socket is None:
                raise EnvError("an OpenEnv environment was not started, or is closed, got a call; start a new one")
            try:
                while self._num_unread:
                    await self._socket.recv()
                    self._num_unread -= 1
                with contextlib.suppress(ConnectionClosed):  # a full server says so and closes, before it is asked
                    await self._socket.send(json.dumps(message))
                text = await self._socket.recv()
            except asyncio.CancelledError:
                self._num_unread += 1
                raise
            except (WebSocketException, OSError) as cause:
                raise self._make_unavailable_error(cause) from cause
        with boundary(EnvError, f"reading the answer of the OpenEnv server {self._http_url}"):
            answer = json.loads(text)
            data = answer["data"]
            if answer["type"] == "error":
                problems = "".join(f"; {problem['msg']}" for problem in data.get("errors") or ())
                raise RefusedActionError(f"{data.get('message')}{problems}", str(data.get("code", "")))
            return data

    async def action_schema(self) -> dict[str, Any]:
        """Returns the JSON schema of an action."""
        server = HttpService(self._http_url, name="the OpenEnv server", extra="openenv")
        try:
            schema = await server.ask("GET", "/schema", timeout=_CONNECT_S)
        finally:
            await server.close()
        with boundary(EnvError, f"reading the action schema of {server.name}"):
            return schema["action"]

    async def close(self) -> None:
        """Ends the session. The server drops the environment with the connection."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _open_socket(self) -> None:
        with needs_extra("openenv", what="an OpenEnv environment"):
            from websockets.asyncio.client import connect
            from websockets.exceptions import WebSocketException
        address = f"{self._http_url.replace('http', 'ws', 1)}/ws"
        try:
            self._socket = await connect(
                address, open_timeout=_CONNECT_S, close_timeout=_CLOSE_S, max_size=_MAX_MESSAGE_BYTES
            )
        except (WebSocketException, OSError, TimeoutError, asyncio.TimeoutError) as cause:
            raise self._make_unavailable_error(cause) from cause

    def _make_unavailable_error(self, cause: BaseException) -> EnvUnavailableError:
        return EnvUnavailableError(
            f"the OpenEnv server {self._http_url} cannot be reached, got {type(cause).__name__}: {cause}; check its log"
        )
