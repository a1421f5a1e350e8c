"""A server in OpenAI's form that gives the answers of a list, and a client of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from services import answering

from verl_agentic.evaluate.policies.completions import Endpoint, EndpointConfig


class Server:
    """Gives the answers of a list, one after the other, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.url = ""
        self.app = FastAPI()
        self.app.add_route("/{path:path}", self.answer, methods=["GET", "POST"])

    async def answer(self, request: Request) -> Any:
        self.paths.append(request.url.path)
        self.keys.append(request.headers.get("authorization"))
        self.times.append(time.monotonic())
        if request.method == "POST":
            self.bodies.append(await request.json())
        answer = self.answers.pop(0)
        if asyncio.iscoroutinefunction(answer):
            answer = await answer()
        return answer if isinstance(answer, JSONResponse | PlainTextResponse) else JSONResponse(answer)


def refuse(code: int, message: str = "no", **headers: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message}}, status_code=code, headers=headers)


def choice(**fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"choices": [{"index": 0, "finish_reason": "stop", **fields}], "usage": usage}


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Serves until the block ends."""
    server = Server()
    with answering(server.app) as service:
        server.url = service.url
        yield server


@contextlib.asynccontextmanager
async def connected(server: Server, answers: list[Any], **config: Any) -> AsyncIterator[Endpoint]:
    """Gives a client of a server that will give these answers, all of which must be asked for."""
    for kept in (server.bodies, server.paths, server.keys, server.times):
        kept.clear()
    server.answers = list(answers)
    endpoint = Endpoint(EndpointConfig(**{"url": server.url, "model": "m", "retry_wait_s": 0.01, **config}))
    try:
        yield endpoint
    finally:
        await endpoint.close()
    assert not server.answers, "all answers were asked for"
