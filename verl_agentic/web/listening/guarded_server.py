"""A uvicorn server that no client can fill up: limits of connections, and of the time for a request's head and body.

uvicorn has none of these limits, and asyncio writes a traceback for each connection that it cannot accept. So
connections are accepted here. A server at its limit drops the connections that have waited longest for a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import h11
import uvicorn

logger = logging.getLogger(__name__)
_MAX_CONNECTIONS, _MIN_CONNECTIONS = 4_096, 8
_BACK_OFF_S, _LOG_PAUSE_S = 0.1, 60.0


def _default_connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, descriptors // 2))


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits of connections and times."""

    head_s: float = 10.0
    """Time for the head of a request."""
    body_s: float = 120.0
    """Time for the body, and for an answer that the client does not read."""
    keep_alive_s: int = 5
    """Time that a connection is kept between two requests."""
    grace_s: int = 30
    """Time for running requests at the end."""
    max_connections: int = field(default_factory=_default_connections)
    """By default half of the descriptors of this process."""


class GuardedServer(uvicorn.Server):
    """A server of one application. `serve([socket])` ends after SIGINT or SIGTERM, once running requests are done."""

    def __init__(self, app: Any, *, limits: ConnectionLimits | None = None, has_signals: bool = True) -> None:
        """Makes the server.

        Args:
            app: an ASGI application behind `RequestGuard`.
            limits: of its clients.
            has_signals: whether SIGINT and SIGTERM end the server. In other threads than the main one they never do.
        """
        self.limits = limits or ConnectionLimits()
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_level="error", access_log=False,
            timeout_graceful_shutdown=self.limits.grace_s, timeout_keep_alive=self.limits.keep_alive_s,
        )  # fmt: skip
        super().__init__(config)
        self._has_signals = has_signals
        self._accepting: list[asyncio.Task[None]] = []
        self._waiting: dict[Any, tuple[Any, float]] = {}
        """Connection -> what it waits for, and since when."""
        self._logged_at = float("-inf")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ends the server at a signal. uvicorn would raise the signal again, before the application is closed."""
        is_main = threading.current_thread() is threading.main_thread()
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM) if self._has_signals and is_main else ()
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept connections."""
        await super().startup(sockets=[])
        self._accepting = [asyncio.ensure_future(self._accept_connections(listening)) for listening in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the server once running requests are finished."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets=sockets)

    async def on_tick(self, counter: int) -> bool:
        """Returns whether the server ends; called ten times per second."""
        if counter % 5 == 0:
            self._drop_slow()
        return await super().on_tick(counter)

    async def _accept_connections(self, listening: socket.socket) -> None:
        """Accepts connections, one after the other."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            if len(self.server_state.connections) >= self.limits.max_connections:
                await asyncio.sleep(0 if self._drop_longest_waiting() else _BACK_OFF_S)
                continue
            try:
                connection, _ = await loop.sock_accept(listening)
                _, protocol = await loop.connect_accepted_socket(self._make_protocol, connection)
            except OSError as cause:  # no descriptor is left
                self._log_seldom(cause)
                self._drop_longest_waiting()
                await asyncio.sleep(_BACK_OFF_S)
            else:
                self._waiting[protocol] = ((None, h11.IDLE), time.monotonic())

    @property
    def _open_connections(self) -> list[Any]:
        return list(self.server_state.connections)

    def _make_protocol(self) -> Any:
        kind: Any = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def _time_limit_of(self, connection: Any) -> float | None:
        """Returns the time for what a connection waits for; None if it waits for the application, or may stay idle."""
        state = connection.conn.their_state
        if state is h11.IDLE:
            is_begun = connection.cycle is None or connection.conn.trailing_data[0]
            return self.limits.head_s if is_begun else None
        is_waiting = state is h11.SEND_BODY or connection.transport.get_write_buffer_size()
        return self.limits.body_s if is_waiting else None

    def _drop_slow(self) -> None:
        """Drops connections that wait for their client for too long."""
        now, waiting = time.monotonic(), {}
        for connection in self._open_connections:
            limit_s = self._time_limit_of(connection)
            if limit_s is None:
                continue
            request = (connection.cycle, connection.conn.their_state)
            before, since = self._waiting.get(connection, (request, now))
            waiting[connection] = (request, since if before == request else now)
            if now - waiting[connection][1] > limit_s:
                connection.transport.abort()
        self._waiting = waiting

    def _drop_longest_waiting(self) -> bool:
        """Drops an eighth of the connections, those that have waited longest for a request; returns if any waits."""
        idle = [
            connection
            for connection in self._open_connections
            if connection.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        ]
        idle.sort(key=lambda connection: self._waiting.get(connection, (None, 0.0))[1])
        for connection in idle[: max(1, self.limits.max_connections // 8)]:
            connection.transport.abort()
        return bool(idle)

    def _log_seldom(self, cause: OSError) -> None:
        if time.monotonic() - self._logged_at > _LOG_PAUSE_S:
            self._logged_at = time.monotonic()
            logger.error("no connection can be accepted, trying again: %s", cause)
