"""A client of an HTTP service: its connections, its failures, and the pauses between attempts.

httpx is an optional dependency. It is imported when a client is made.
"""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
import time
from typing import TYPE_CHECKING, Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import AgenticError, EnvError, EnvUnavailableError, boundary

if TYPE_CHECKING:
    import httpx

OVERLOADED = frozenset({429, 502, 503, 504})
"""Statuses of a server without room at the moment, or of a proxy before it."""
_MAY_PASS = frozenset({408, 409, 425, 429})


def may_pass(status: int) -> bool:
    """Returns whether a status is of a failure that may pass, such as 502, or 529 of an overloaded server."""
    return status in _MAY_PASS or status >= 500


def read_wait_s(header: Any) -> float:
    """Returns the seconds of a `Retry-After` header; 0 for a missing header or a date."""
    text = str(header or "")
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def retry_wait_s(number: int, asked_s: float, *, first_s: float, max_s: float, max_asked_s: float) -> float:
    """Returns the pause after an attempt, in seconds: see `Attempts`."""
    # Jitter, so that clients which failed together do not retry together.
    own_s = min(max_s, first_s * 2 ** min(number - 1, 60)) * random.uniform(0.5, 1.0)
    return max(own_s, min(max_asked_s, asked_s))


class Attempts:
    """The numbers of the attempts of a request, from 1, with a pause before each but the first.

    async for number in (attempts := Attempts(6, first_s=0.5)):
        response = ...
        attempts.asked_s = read_wait_s(response.headers.get("retry-after"))
    """

    def __init__(
        self,
        max_attempts: int | None = None,
        *,
        first_s: float,
        max_s: float = 8.0,
        max_asked_s: float | None = None,
        within_s: float | None = None,
    ) -> None:
        """Starts the clock of `within_s`.

        Args:
            max_attempts: maximum number of attempts; None: only time ends them.
            first_s: longest first pause. It doubles with each attempt, up to `max_s`, and is random from its half on.
            max_s: longest pause that is our own choice, in seconds.
            max_asked_s: longest pause that the service may ask for; default: `max_s`.
            within_s: time in which the last attempt must begin, in seconds; None: any.
        """
        self.asked_s = 0.0
        """Pause that the service asks for after the current attempt, in seconds."""
        self.number = 0
        """Number of the current attempt."""
        self._max_attempts = max_attempts
        max_asked_s = max_s if max_asked_s is None else max_asked_s
        self._pauses = {"first_s": first_s, "max_s": max_s, "max_asked_s": max_asked_s}
        self._end = None if within_s is None else time.monotonic() + within_s

    @property
    def is_last(self) -> bool:
        """True in the last of `max_attempts` attempts."""
        return self.number == self._max_attempts

    def __aiter__(self) -> Attempts:
        return self

    async def __anext__(self) -> int:
        if self.number:
            pause_s = retry_wait_s(self.number, self.asked_s, **self._pauses)
            if self.is_last or (self._end is not None and time.monotonic() + pause_s > self._end):
                raise StopAsyncIteration
            await asyncio.sleep(pause_s)
        self.number, self.asked_s = self.number + 1, 0.0
        return self.number


def open_http(
    url: str = "",
    *,
    extra: str,
    what: str,
    token: str = "",
    max_connections: int | None = None,
    connect_s: float | None = None,
    **options: Any,
) -> httpx.AsyncClient:
    """Returns a client without deadlines but that of a connection.

    Args:
        url: of the server; empty: any.
        extra: extra of the package that installs httpx.
        what: user of the client, for the error.
        token: bearer token; empty: none.
        max_connections: maximum number of connections, all of which are kept open; None: any, and 64 kept open.
        connect_s: deadline of a connection, in seconds; None: none.
        options: of httpx.

    Raises:
        MissingDependencyError: httpx is not installed.
    """
    with needs_extra(extra, what=what):
        import httpx
    return httpx.AsyncClient(
        headers={"Authorization": f"Bearer {token}"} if token else {},
        limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections or 64),
        timeout=httpx.Timeout(None, connect=connect_s),
        verify=False if url.startswith("http://") else _ssl_context(),
        **options,
    )


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()  # reads the certificates, which blocks the event loop for 0.1 s


class HttpService:
    """A server whose failures are errors of this package."""

    def __init__(
        self, url: str, *, name: str, extra: str, unavailable: type[AgenticError] = EnvUnavailableError, **options: Any
    ) -> None:
        """Makes the client; nothing is sent yet.

        Args:
            url: to which paths are added.
            name: of the server, for errors.
            extra: extra of the package that installs httpx.
            unavailable: error if the server cannot be reached.
            options: of `open_http`.

        Raises:
            MissingDependencyError: httpx is not installed.
        """
        self.http = open_http(url, extra=extra, what=name, **options)
        self._url, self._unavailable = url.rstrip("/"), unavailable
        self.name = f"{name} {self._url}"

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Returns the answer, whatever its status. Raises `unavailable` if the server cannot be reached."""
        from httpx import HTTPError

        try:
            return await self.http.request(method, self._url + path, **options)
        except HTTPError as cause:
            raise self._unavailable(
                f"{self.name} cannot be reached, got {type(cause).__name__}: {cause}; check that it runs"
            ) from cause

    async def ask(self, method: str, path: str, *, error: type[AgenticError] = EnvError, **options: Any) -> Any:
        """Returns the JSON of an answer with status 200. Raises `error` for any other answer, and as `send`."""
        response = await self.send(method, path, **options)
        if response.status_code != 200:
            status, text = response.status_code, response.text[:300]
            raise error(f"{self.name} refused {path}, got HTTP {status}: {text}; see its log")
        with boundary(error, f"reading the answer of {self.name}"):
            return response.json()

    async def close(self) -> None:
        """Closes the connections."""
        await self.http.aclose()
