"""HTTP of an environment server; `wire.py` describes it.

Answers: 200 with a line per call, also if calls failed; 400 invalid request; 401 missing or wrong token; 403 a foreign
web page; 413 too large; 415 not announced as JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import AgenticError, EnvError, boundary
from verl_agentic.bridges.remote.sessions import EnvSessions
from verl_agentic.bridges.remote.wire import CALLS, HEALTH, RENEW, dumps, failure_of
from verl_agentic.web.listening.request_guard import RequestGuard, require_token

with needs_extra("serve", what="serving environments"):
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.responses import StreamingResponse


def make_app(sessions: EnvSessions) -> FastAPI:
    """Returns the ASGI application over sessions that have been started."""
    config = sessions.config
    app = FastAPI(title="verl-agentic environment", docs_url=None, redoc_url=None, openapi_url=None)

    app.add_middleware(
        RequestGuard, authorize=require_token(config.token), max_body_bytes=config.max_request_mb * 2**20
    )

    def read(request: Request, key: str) -> list[Any]:
        """Returns a list of the request's body."""
        body = request.state.json
        if not isinstance(body, dict) or not isinstance(body.get(key), list):
            raise HTTPException(400, f"the body must be an object with a list {key}")
        return body[key]

    @app.post(CALLS)
    async def calls(request: Request) -> Response:
        batch = read(request, "calls")
        if not all(isinstance(call, dict) for call in batch):
            raise HTTPException(400, "a call must be an object")
        return StreamingResponse(_iter_answers(sessions, batch), media_type="application/x-ndjson")

    @app.post(RENEW)
    async def renew(request: Request) -> dict[str, Any]:
        sessions.renew(name for name in read(request, "sessions") if isinstance(name, str))
        return {"lease_s": config.lease_s}

    @app.get(HEALTH)
    async def health() -> dict[str, Any]:
        return sessions.health()

    return app


async def _iter_answers(sessions: EnvSessions, calls: Sequence[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yields a line per call as soon as it has ended. A slow call delays no other one."""
    indices = {asyncio.create_task(sessions.answer(call)): index for index, call in enumerate(calls)}
    pending = set(indices)
    try:
        while pending:
            done_tasks, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            yield b"".join(_write_line(indices[task], task) for task in done_tasks)
    finally:
        for task in pending:  # the client has gone; the calls themselves go on, until it asks again or the lease ends
            task.cancel()


def _write_line(index: int, task: asyncio.Task[dict[str, Any]]) -> bytes:
    try:
        with boundary(EnvError, "the environment server"):
            return dumps({"call": index, **task.result()}) + b"\n"
    except AgenticError as error:
        return dumps({"call": index, **failure_of(error)}) + b"\n"
