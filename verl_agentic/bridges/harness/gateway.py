"""HTTP server of a process's sessions, in the dialects of OpenAI and Anthropic.

    POST /{session}/v1/chat/completions    OpenAI chat completions
    POST /{session}/v1/responses           OpenAI Responses
    POST /{session}/v1/messages            Anthropic messages
    POST /{session}/v1/messages/count_tokens   the number of tokens that a request would begin with
    GET  /{session}/v1/models              one model, under one name
    GET  /{session}/v1/models/{id}         that model, under any name

The key in the address is the authorisation, so clients may send any API key but that of another session.

Codes: 400 a request that cannot be served, 403 a foreign web page or the API key of another session, 404 the episode is
over (code `episode_over`) or unknown endpoint, 413 too large, 415 not announced as JSON. No client retries these codes.
A stream whose turn takes longer begins with comments, and then has errors as an event `error`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.bridges.harness.dialects import DIALECTS, Dialect
from verl_agentic.bridges.harness.dialects.wire import MODEL, ChatAnswer, SessionOptions, check_history, events
from verl_agentic.bridges.harness.session import AgentSession, EpisodeOverError
from verl_agentic.web.listening.guarded_server import ConnectionLimits, GuardedServer
from verl_agentic.web.listening.listening_socket import open_socket, url_of
from verl_agentic.web.listening.request_guard import RequestGuard, RequestRefusedError
from verl_agentic.web.per_loop import SharedPerLoop

with needs_extra("serve", what="the gateway"):
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response, StreamingResponse

_LIMITS = ConnectionLimits(keep_alive_s=300, grace_s=5)
_OVER = "the session has ended"
_MAX_REFUSALS = 8
_GONE = 499
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
    options: SessionOptions


@dataclass(eq=False, kw_only=True)
class Gateway:
    """A server and its sessions, in the event loop that runs the episodes."""

    url: str
    host_names: Collection[str] = ()
    """Names by which requests may call it, beside those of loopback."""
    sessions: dict[str, _Entry] = field(default_factory=dict)

    def open(self, session: AgentSession, *, options: SessionOptions) -> str:
        """Registers a session and returns its key, which is part of its address."""
        key = secrets.token_hex(16)
        self.sessions[key] = _Entry(session=session, options=options)
        return key

    def close(self, key: str) -> None:
        """Removes a session; later requests get 404."""
        self.sessions.pop(key, None)


class GatewayServer:
    """A gateway that listens at a place."""

    def __init__(self, place: Place) -> None:
        """Starts the server. Raises ConfigError if the address is in use or does not belong to this machine."""
        listening = open_socket(place.host, place.port)
        url = place.public_url.rstrip("/").replace("{port}", str(listening.getsockname()[1])) or url_of(listening)
        self.gateway = Gateway(url=url, host_names=(urlsplit(url).hostname or "",))
        self._stop = asyncio.Event()
        self._serving = asyncio.ensure_future(self._serve_sessions(listening))

    async def _serve_sessions(self, listening: socket.socket) -> None:
        # Signals are the process's own.
        server = GuardedServer(make_app(self.gateway), limits=_LIMITS, has_signals=False)
        with listening:
            serving = asyncio.ensure_future(server.serve([listening]))
            try:
                await self._stop.wait()
            finally:
                server.should_exit = True
                await serving

    async def close(self) -> None:
        """Ends the server."""
        self._stop.set()
        await asyncio.wait([self._serving])


gateway_servers: SharedPerLoop[Place, GatewayServer] = SharedPerLoop(GatewayServer)


def make_app(gateway: Gateway) -> FastAPI:
    """Returns the ASGI application. The key of a session is the token of its agent."""
    app = FastAPI(title="verl-agentic gateway", docs_url=None, redoc_url=None, openapi_url=None)

    def check_session(scope: Any) -> None:
        entry = gateway.sessions.get(_key_of(scope["path"]))
        if entry is None:
            raise RequestRefusedError(404, _OVER)
        tokens = {_read_token(value) for name, value in scope["headers"] if name in (b"authorization", b"x-api-key")}
        if others := tokens & gateway.sessions.keys() - {_key_of(scope["path"])}:
            raise RequestRefusedError(
                403, f"the address and the API key belong to {len(others) + 1} sessions; use those of one `endpoint`"
            )
        scope.setdefault("state", {})["entry"] = entry

    def write_refusal(scope: Any, status: int, message: str) -> dict[str, Any]:
        cause = EpisodeOverError(message) if message == _OVER else ConfigError(message)
        return _refuse_request(cause, scope.get("state", {}).get("entry"), _dialect_of(scope["path"]))

    app.add_middleware(
        RequestGuard, authorize=check_session, host_names=gateway.host_names, write_refusal=write_refusal
    )

    @app.get("/{key}/v1/models")
    async def models(request: Request) -> JSONResponse:
        paging = {"has_more": False, "first_id": MODEL, "last_id": MODEL}
        form = paging if _is_anthropic(request) else {"object": "list"}
        return JSONResponse({"data": [_write_model(MODEL, request)], **form})

    @app.get("/{key}/v1/models/{name:path}")
    async def model(name: str, request: Request) -> JSONResponse:
        return JSONResponse(_write_model(name, request))

    @app.post("/{key}/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> JSONResponse:
        entry, dialect = request.state.entry, DIALECTS["messages"]
        try:
            chat_request, _ = _read_request(await request.body(), request.state.json, entry, dialect)
            return JSONResponse({"input_tokens": await entry.session.count_tokens(chat_request)})
        except (ConfigError, DataError) as cause:
            return JSONResponse(_refuse_request(cause, entry, dialect), status_code=400)

    def add(path: str, dialect: Dialect) -> None:
        @app.post(f"/{{key}}/v1/{path}")
        async def answer(request: Request) -> Response:
            return await _answer_request(request, request.state.entry, dialect)

    for path, dialect in DIALECTS.items():
        add(path, dialect)

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def unknown(request: Request, error: Any) -> JSONResponse:
        place = request.url.path.partition("/v1")[2]  # without the key
        dialect = DIALECTS["messages"] if _is_anthropic(request) else _dialect_of(request.url.path)
        body = dialect.refuse(f"no such endpoint, got {request.method} {place}", kind="not_found")
        return JSONResponse(body, status_code=error.status_code)

    return app


def _key_of(path: str) -> str:
    return path.strip("/").partition("/")[0]


def _read_token(header: bytes) -> str:
    return header.decode("latin-1").removeprefix("Bearer ").strip()


def _dialect_of(path: str) -> Dialect:
    """Returns the dialect of a path below `/v1/`; without one, that of chat completions."""
    below = path.partition("/v1/")[2]
    matching = (dialect for name, dialect in DIALECTS.items() if below == name or below.startswith(f"{name}/"))
    return next(matching, DIALECTS["chat/completions"])


def _is_anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers


def _write_model(name: str, request: Request) -> dict[str, Any]:
    """Returns a model in the form of the client's API."""
    if _is_anthropic(request):
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "verl-agentic"}


async def _answer_request(request: Request, entry: _Entry, dialect: Dialect) -> Response:
    try:
        body = await request.body()
        chat_request, payload = _read_request(body, request.state.json, entry, dialect)
        check_history(chat_request.messages)
        retries = request.headers.get("x-stainless-retry-count", "0")
        # By what it asks: a retry may have another header of accounting, or give up streaming.
        key = hashlib.blake2b(repr((request.url.path, chat_request)).encode("utf-8", "replace")).digest()
        work = asyncio.ensure_future(entry.session.ask(chat_request, key=key, is_retry=retries != "0"))
        is_stream = bool(payload.get("stream"))
        if not await _wait_for_work(work, request, timeout_s=_KEEP_ALIVE_S if is_stream else None):
            return Response(status_code=_GONE)
        if not work.done():
            return StreamingResponse(_iter_late_events(work, entry, dialect, payload), media_type=_EVENTS)
        answer = work.result()
    except (EpisodeOverError, ConfigError, DataError) as cause:
        return JSONResponse(_refuse_request(cause, entry, dialect), status_code=404 if _is_over(cause) else 400)
    if is_stream:
        return Response(dialect.stream(answer, payload), media_type=_EVENTS)
    return JSONResponse(dialect.write(answer, payload))


def _is_over(cause: Exception) -> bool:
    return isinstance(cause, EpisodeOverError)


def _refuse_request(cause: Exception, entry: _Entry | None, dialect: Dialect) -> dict[str, Any]:
    """Returns the body of an error; the session keeps why it refused a request."""
    if not _is_over(cause) and entry is not None and len(entry.session.refusals) < _MAX_REFUSALS:
        entry.session.refusals.append(str(cause))
    return dialect.refuse(str(cause), kind="episode_over" if _is_over(cause) else "invalid_request_error")


async def _wait_for_work(work: asyncio.Future[Any], request: Request, *, timeout_s: float | None) -> bool:
    """Waits for the work or the time. Returns False, and cancels the work, if the client has disconnected."""
    disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({work, disconnect}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done() and not work.done():
            await _cancel_work(work)
            return False
    except asyncio.CancelledError:
        await _cancel_work(work)
        raise
    finally:
        disconnect.cancel()
        await asyncio.gather(disconnect, return_exceptions=True)
    return True


async def _iter_late_events(
    work: asyncio.Future[ChatAnswer], entry: _Entry, dialect: Dialect, payload: dict[str, Any]
) -> AsyncIterator[str]:
    """Yields comments until the work is done, so that a client with a read timeout stays, and then its events."""
    try:
        while not work.done():
            yield ": keep-alive\n\n"
            await asyncio.wait({work}, timeout=_KEEP_ALIVE_S)
        yield dialect.stream(work.result(), payload)
    except (EpisodeOverError, ConfigError, DataError) as cause:  # the status has been sent
        yield events([("error", _refuse_request(cause, entry, dialect))], named=True)
    finally:
        await _cancel_work(work)


async def _cancel_work(work: asyncio.Future[Any]) -> None:
    """Cancels the work and waits until it has ended, so that nothing of it outlives the request."""
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def _read_request(body: bytes, payload: Any, entry: _Entry, dialect: Dialect) -> tuple[Any, dict[str, Any]]:
    if _SURROGATE in body.lower():  # half of a pair, which no tokenizer can encode
        payload = json.loads(json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace"))
    try:
        return dialect.read(payload, options=entry.options, stored=entry.session.stored), payload
    except (TypeError, AttributeError, KeyError, RecursionError) as cause:
        raise ConfigError(f"the request is malformed, got {type(cause).__name__}: {cause}; fix it") from cause


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
