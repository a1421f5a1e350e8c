"""HTTP server of a process's sessions, in the dialects of OpenAI and Anthropic.

    POST /{session}/v1/chat/completions    OpenAI chat completions
    POST /{session}/v1/responses           OpenAI Responses
    POST /{session}/v1/messages            Anthropic messages
    GET  /{session}/v1/models              one model, under one name

Codes: 400 a request that cannot be served, 404 the episode is over (code `episode_over`) or unknown endpoint. No client
retries these codes. A stream whose turn takes longer begins with comments, and then has errors as an event `error`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.bridges.harness.dialects import DIALECTS, Dialect
from verl_agentic.bridges.harness.session import AgentSession, EpisodeOverError
from verl_agentic.bridges.harness.wire import MODEL, ChatAnswer, events
from verl_agentic.env_card import needs_extra
from verl_agentic.errors import ConfigError, DataError

with needs_extra("serve", what="the gateway"):
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response, StreamingResponse
    from starlette.requests import ClientDisconnect

_BACKLOG = 2_048
_GRACE_S = 5
_OVER = "the session has ended"
_MAX_REFUSALS = 8
_GONE = 499
_MAX_BODY_BYTES = 1 << 26
_KEEP_ALIVE_S = 3.0  # below the shortest usual read timeout: 5 s in httpx
_EVENTS = "text/event-stream"
_SURROGATE = rb"\ud"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Address of a gateway."""

    host: str = ""
    """Empty: chosen for the agent."""
    port: int = 0
    """0: a free one."""
    public_url: str = ""
    """Address for agents on other machines, such as `http://10.0.0.5:{port}`. Empty: that of host and port."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    session: AgentSession
    ignore: Collection[str]


@dataclass(eq=False, kw_only=True)
class Gateway:
    """A server and its sessions, in the event loop that runs the episodes."""

    url: str
    sessions: dict[str, _Entry] = field(default_factory=dict)
    num_users: int = 0

    def open(self, session: AgentSession, *, ignore: Collection[str]) -> str:
        """Registers a session and returns its key, which is part of its address."""
        key = secrets.token_hex(16)
        self.sessions[key] = _Entry(session=session, ignore=ignore)
        return key

    def close(self, key: str) -> None:
        """Removes a session; later requests get 404."""
        self.sessions.pop(key, None)


_running: dict[tuple[asyncio.AbstractEventLoop, Place], tuple[Gateway, asyncio.Task[None], asyncio.Event]] = {}


@contextlib.asynccontextmanager
async def shared_gateway(place: Place) -> AsyncIterator[Gateway]:
    """Provides the gateway of this event loop. The first user starts it, and the last one stops it.

    Raises:
        ConfigError: the address is in use or does not belong to this machine.
    """
    key = (asyncio.get_running_loop(), place)
    if key not in _running:
        _running[key] = _start(place)
    gateway, serving, stop = _running[key]
    gateway.num_users += 1
    try:
        yield gateway
    finally:
        gateway.num_users -= 1
        if not gateway.num_users:
            del _running[key]
            stop.set()
            await asyncio.wait([serving])


def _start(place: Place) -> tuple[Gateway, asyncio.Task[None], asyncio.Event]:
    try:
        listening = socket.create_server((place.host, place.port), backlog=_BACKLOG)
    except OSError as cause:
        raise ConfigError(
            f"the gateway cannot listen at {place.host}:{place.port}, got {cause}; choose another port"
        ) from cause
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without it, an answer waits 40 ms for an ACK
    url = place.public_url.rstrip("/") or f"http://{place.host}:{{port}}"
    gateway = Gateway(url=url.replace("{port}", str(listening.getsockname()[1])))
    stop = asyncio.Event()
    return gateway, asyncio.ensure_future(_serve(make_app(gateway), listening, stop)), stop


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the process's own


async def _serve(app: FastAPI, listening: socket.socket, stop: asyncio.Event) -> None:
    config = uvicorn.Config(
        app, lifespan="off", log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=300, ws="none",
    )  # fmt: skip
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve([listening]))
    try:
        await stop.wait()
    finally:
        server.should_exit = True
        await serving
        listening.close()


def make_app(gateway: Gateway) -> FastAPI:
    """Returns the ASGI application."""
    app = FastAPI(title="verl-agentic gateway", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/{key}/v1/models")
    async def models(key: str) -> JSONResponse:
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "verl-agentic"}
        return JSONResponse({"object": "list", "data": [model]})

    def add(path: str, dialect: Dialect) -> None:
        @app.post(f"/{{key}}/v1/{path}")
        async def answer(key: str, request: Request) -> Response:
            return await _answer(request, gateway.sessions.get(key), dialect)

    for path, dialect in DIALECTS.items():
        add(path, dialect)
    return app


async def _answer(request: Request, entry: _Entry | None, dialect: Dialect) -> Response:
    try:
        if entry is None:
            raise EpisodeOverError(_OVER)
        body = await _body(request)
        asked, given = _read(body, entry, dialect)
        retries = request.headers.get("x-stainless-retry-count", "0")
        key = hashlib.blake2b(request.url.path.encode() + b"\0" + body).digest()
        work = asyncio.ensure_future(entry.session.ask(asked, key=key, is_retry=retries != "0"))
        is_stream = bool(given.get("stream"))
        if not await _wait(work, request, timeout_s=_KEEP_ALIVE_S if is_stream else None):
            return Response(status_code=_GONE)
        if not work.done():
            return StreamingResponse(_late(work, entry, dialect, given), media_type=_EVENTS)
        answer = work.result()
    except ClientDisconnect:
        return Response(status_code=_GONE)
    except (EpisodeOverError, ConfigError, DataError) as cause:
        return JSONResponse(_refusal(cause, entry, dialect), status_code=404 if _is_over(cause) else 400)
    if is_stream:
        return Response(dialect.stream(answer, given), media_type=_EVENTS)
    return JSONResponse(dialect.write(answer, given))


def _is_over(cause: Exception) -> bool:
    return isinstance(cause, EpisodeOverError)


def _refusal(cause: Exception, entry: _Entry | None, dialect: Dialect) -> dict[str, Any]:
    """Returns the body of an error; the session keeps why it refused a request."""
    if not _is_over(cause) and entry is not None and len(entry.session.refusals) < _MAX_REFUSALS:
        entry.session.refusals.append(str(cause))
    return dialect.refuse(str(cause), kind="episode_over" if _is_over(cause) else "invalid_request_error")


async def _wait(work: asyncio.Future[Any], request: Request, *, timeout_s: float | None) -> bool:
    """Waits for the work or the time. Returns False, and cancels the work, if the client has disconnected."""
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({work, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not work.done():
            await _cancelled(work)
            return False
    except asyncio.CancelledError:
        await _cancelled(work)
        raise
    finally:
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    return True


async def _late(
    work: asyncio.Future[ChatAnswer], entry: _Entry, dialect: Dialect, given: dict[str, Any]
) -> AsyncIterator[str]:
    """Yields comments until the work is done, so that a client with a read timeout stays, and then its events."""
    try:
        while not work.done():
            yield ": keep-alive\n\n"
            await asyncio.wait({work}, timeout=_KEEP_ALIVE_S)
        yield dialect.stream(work.result(), given)
    except (EpisodeOverError, ConfigError, DataError) as cause:  # the status has been sent
        yield events([("error", _refusal(cause, entry, dialect))], named=True)
    finally:
        await _cancelled(work)


async def _cancelled(work: asyncio.Future[Any]) -> None:
    """Cancels the work and waits until it has ended, so that nothing of it outlives the request."""
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _body(request: Request) -> bytes:
    """Returns the body. Raises ConfigError if it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise ConfigError(f"the body must not be large, got more than {_MAX_BODY_BYTES} bytes; send less text")
    return bytes(body)


def _read(body: bytes, entry: _Entry, dialect: Dialect) -> tuple[Any, dict[str, Any]]:
    try:
        given = json.loads(body)
        if _SURROGATE in body.lower():  # half of a pair, which no tokenizer can encode
            given = json.loads(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as cause:
        raise ConfigError(f"the body is not JSON, got {cause}; send an object") from cause
    try:
        return dialect.read(given, ignore=entry.ignore, stored=entry.session.stored), given
    except (TypeError, AttributeError, KeyError, RecursionError) as cause:
        raise ConfigError(f"the request is malformed, got {type(cause).__name__}: {cause}; fix it") from cause


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
