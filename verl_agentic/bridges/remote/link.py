"""The connection to one environment server: calls of all episodes in shared requests, and signs of life."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import AgenticError, ConfigError, EnvError, EnvUnavailableError
from verl_agentic.bridges.remote.addresses import TOKEN_VARIABLE
from verl_agentic.bridges.remote.wire import CALLS, RENEW, dumps, error_of
from verl_agentic.web.http_service import OVERLOADED, Attempts, open_http

with needs_extra("remote", what="a remote environment"):
    import httpx

_ATTEMPTS = 3
_PAUSE_S = 0.2
_CONNECT_S = 10.0
_FIRST_LEASE_S = 30.0  # until the server has named its own
_REFUSALS = {
    401: f"set the token, or {TOKEN_VARIABLE}",
    403: "call it localhost or by its address",
    404: "check the url",
    413: "raise max_request_mb of the server",
}


class EnvLink:
    """A server as one event loop sees it."""

    def __init__(self, url: str, *, token: str, batch_wait_s: float) -> None:
        """Makes the link; it connects with the first call.

        Args:
            url: of the server.
            token: of the server; empty: none.
            batch_wait_s: time that a call waits for others to share its request, in seconds.
        """
        self.url = url.rstrip("/")
        self.sessions: set[str] = set()
        self.failed_at = float("-inf")
        """When the server was last found unreachable, in seconds of the monotonic clock."""
        self._batch_wait_s = batch_wait_s
        self._http = open_http(url, extra="remote", what="a remote environment", token=token, connect_s=_CONNECT_S)
        self._http.headers["Content-Type"] = "application/json"
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[Any]]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._signs: asyncio.Task[None] | None = None

    async def call(self, call: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer to a call; repeats it if the connection fails.

        Raises:
            EnvUnavailableError: the server cannot be reached.
            ConfigError: it refuses all requests.
        """
        failure = self._make_unavailable_error("no call")
        async for _ in Attempts(_ATTEMPTS, first_s=_PAUSE_S):
            try:
                return await self._queue_call(call)
            except EnvUnavailableError as cause:
                failure = cause
        self.failed_at = time.monotonic()
        raise failure

    def keep(self, session: str) -> None:
        """Gives signs of life for a session, until it is dropped."""
        self.sessions.add(session)
        if self._signs is None or self._signs.done():
            self._signs = asyncio.create_task(self._give_signs())

    def drop(self, session: str) -> None:
        """Ends the signs of life for a session."""
        self.sessions.discard(session)
        if not self.sessions and self._signs is not None:
            self._signs.cancel()
            self._signs = None

    async def close(self) -> None:
        """Ends all requests and closes the connections."""
        tasks = [*self._sending, *([self._signs] if self._signs is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail_calls(self._waiting, self._make_unavailable_error("the event loop ends"))
        await self._http.aclose()

    def _queue_call(self, call: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """Returns a future of the answer, and sends the call with others that come within a moment."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._waiting.append((call, answer))
        if len(self._waiting) == 1:
            loop.call_later(self._batch_wait_s, self._flush_calls)
        return answer

    def _flush_calls(self) -> None:
        waiting = [(call, answer) for call, answer in self._waiting if not answer.done()]
        self._waiting = []
        if waiting:
            task = asyncio.get_running_loop().create_task(self._send_calls(waiting))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_calls(self, waiting: list[tuple[dict[str, Any], asyncio.Future[Any]]]) -> None:
        """Sends calls and sets the answers as they arrive."""
        failure: AgenticError = self._make_unavailable_error("the request was cancelled")
        try:
            body = dumps({"calls": [call for call, _ in waiting]})
            async with self._http.stream("POST", self.url + CALLS, content=body) as response:
                if response.status_code != 200:
                    failure = self._make_refusal_error(
                        response.status_code, (await response.aread()).decode(errors="replace")
                    )
                    return
                async for line in response.aiter_lines():
                    answer = json.loads(line)
                    future = waiting[answer["call"]][1]
                    if not future.done():  # else the caller was cancelled
                        future.set_result(answer)
            failure = self._make_unavailable_error("the answer was cut off")
        except httpx.TransportError as cause:
            failure = self._make_unavailable_error(f"{type(cause).__name__}: {cause}")
        except AgenticError as cause:
            failure = cause
        except (ValueError, KeyError, IndexError, TypeError, httpx.HTTPError) as cause:
            failure = EnvError(f"{self.url} must answer with lines of JSON, got {type(cause).__name__}: {cause}")
        finally:
            self._fail_calls(waiting, failure)

    def _fail_calls(self, waiting: list[tuple[dict[str, Any], asyncio.Future[Any]]], failure: AgenticError) -> None:
        for _, future in waiting:
            if not future.done():
                future.set_exception(failure)

    def _make_unavailable_error(self, reason: str) -> EnvUnavailableError:
        return EnvUnavailableError(
            f"the environment server {self.url} cannot be reached, got {reason}; check that it runs"
        )

    def _make_refusal_error(self, status: int, text: str) -> AgenticError:
        if status in OVERLOADED:  # a proxy before the server
            return self._make_unavailable_error(f"HTTP {status}: {text[:300]}")
        kind = EnvError if status >= 500 else ConfigError
        hint = _REFUSALS.get(status, "check that both ends have the same version")
        return kind(f"the environment server {self.url} refused a request, got HTTP {status}: {text[:300]}; {hint}")

    async def _give_signs(self) -> None:
        """Renews the leases. If that fails for the time of a lease, the sessions are lost, and so are their calls."""
        renewed, lease_s = time.monotonic(), _FIRST_LEASE_S
        while True:
            body = dumps({"sessions": sorted(self.sessions)})
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
                response = await self._http.post(self.url + RENEW, content=body, timeout=lease_s / 3)
                lease_s = float(response.json()["lease_s"])
                renewed = time.monotonic()
            if time.monotonic() - renewed > lease_s:
                renewed = time.monotonic()
                for task in self._sending:
                    task.cancel()
            await asyncio.sleep(lease_s / 3)


def result_of(answer: Mapping[str, Any]) -> Any:
    """Returns the result in an answer. Raises the error that the server answered with."""
    if "error" in answer:
        raise error_of(answer)
    return answer.get("result")
