"""Serves an application on loopback, in the event loop of a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def serving_app(app: Any) -> AsyncIterator[str]:
    """Serves an ASGI application at the yielded URL."""
    config = uvicorn.Config(
        app, lifespan="off", log_level="critical", timeout_graceful_shutdown=1, ws="websockets-sansio"
    )
    http = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = asyncio.ensure_future(http.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            http.should_exit = True
            await running
