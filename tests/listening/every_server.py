"""All HTTP servers of the package, each with a request that it answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from verl_agentic.bridges.harness import gateway
from verl_agentic.bridges.harness.dialects.wire import SessionOptions
from verl_agentic.bridges.harness.session import AgentSession
from verl_agentic.bridges.remote import server as env_server
from verl_agentic.bridges.remote.sessions import EnvServerConfig, EnvSessions
from verl_agentic.cpu.serving import http_server
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.observe.viewer.viewer_server import PageServer
from verl_agentic.sandbox.pools import run_code_server
from verl_agentic.tools.search import search_server
from verl_agentic.web.listening.guarded_server import ConnectionLimits, GuardedServer
from verl_agentic.web.listening.listening_socket import open_socket

TOKEN = "sesame"


@dataclass(frozen=True, kw_only=True)
class Served:
    """An application, and how to ask it."""

    app: Any
    get: str
    """Path of a request that needs the token."""
    post: str = ""
    """Path that takes a body; empty: none does."""
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": f"Bearer {TOKEN}"})
    refused_without_token: int = 401
    error_key: str = "detail"


def _model() -> Served:
    engine: Any = SimpleNamespace(stats=dict, max_positions=10)
    served = http_server.Served(engine=engine, tokenizer=None, chat=None, name="m", token=TOKEN)  # type: ignore[arg-type]
    return Served(app=http_server.make_app(served), get="/v1/models", post="/v1/completions", error_key="error")


def _env() -> Served:
    package = EnvPackage(
        env_id="e", folder=Path(), make_env=lambda row: row, make_rows=None, gold=None, demonstrator=None
    )
    sessions = EnvSessions(package, config=EnvServerConfig(token=TOKEN))
    return Served(app=env_server.make_app(sessions), get="/nothing", post="/v1/renew")


def _sandbox() -> Served:
    config = run_code_server.ServerConfig(token=TOKEN, size=1)
    backend: Any = SimpleNamespace(name="fake", isolation=None)
    return Served(
        app=run_code_server.make_app(run_code_server.SandboxServer(backend, config)), get="/metrics", post="/run_code"
    )


def _search() -> Served:
    class Empty:
        async def ready(self) -> None: ...

        async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Any]]:
            return [[] for _ in queries]

    return Served(app=search_server.make_app(Empty(), token=TOKEN), get="/nothing", post="/retrieve")


def _gateway() -> Served:
    served = gateway.Gateway(url="http://127.0.0.1")
    key = served.open(AgentSession(max_sides=0), options=SessionOptions())
    return Served(
        app=gateway.make_app(served), get=f"/{key}/v1/models", post=f"/{key}/v1/messages", headers={},
        refused_without_token=404, error_key="error",
    )  # fmt: skip


def _viewer() -> Served:
    with PageServer(SimpleNamespace(about=dict), host="127.0.0.1", port=0) as server:  # type: ignore[arg-type]
        cookie = {"Cookie": f"{server.cookie}={server.secret}"}
        return Served(app=server.app, get="/api/run", headers=cookie, refused_without_token=403)


SERVERS: dict[str, Callable[[], Served]] = {
    "model": _model,
    "env": _env,
    "sandbox": _sandbox,
    "search": _search,
    "gateway": _gateway,
    "viewer": _viewer,
}


@contextlib.asynccontextmanager
async def listening(app: Any, **limits: Any) -> AsyncIterator[int]:
    """Serves an application; yields its port."""
    server = GuardedServer(app, limits=ConnectionLimits(grace_s=1, **limits), has_signals=False)
    with open_socket("127.0.0.1", 0) as socket:
        port = socket.getsockname()[1]
        running = asyncio.ensure_future(server.serve([socket]))
        try:
            yield port
        finally:
            server.should_exit = True
            await running
