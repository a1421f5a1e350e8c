"""HTTP services on loopback for the tests, each in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.pools.run_code_server import SandboxServer, ServerConfig, make_app


class Service:
    """A running service."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def serving(backend: Backend, **config: Any) -> Iterator[Service]:
    """Serves sandboxes of a backend."""
    server = SandboxServer(backend, ServerConfig(**config))
    with _running(make_app(server), server) as service:
        yield service


@contextlib.contextmanager
def answering(app: Any) -> Iterator[Service]:
    """Serves an ASGI application that plays another service."""
    with _running(app, None) as service:
        yield service


@contextlib.contextmanager
def _running(app: Any, server: SandboxServer | None) -> Iterator[Service]:
    http = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=1))
    listening = socket.create_server(("127.0.0.1", 0))
    ready = threading.Event()

    async def serve() -> None:
        if server is not None:
            await server.start()
        ready.set()
        try:
            await http.serve([listening])
        finally:
            if server is not None:
                await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield Service(listening.getsockname()[1])
    finally:
        http.should_exit = True
        thread.join(30)
        listening.close()
