"""OpenAI-compatible HTTP server of the inference engine.

    GET  /v1/models              the one model that is served
    POST /v1/completions         text or token ids in; text, and on request token ids and log-probs, out
    POST /v1/chat/completions    messages and tools in; a message, its tool calls parsed, out
    GET  /health                 present load; needs no token

Streaming is not supported. Unsupported fields are refused with 400. Further codes: 401 missing or wrong token, 403 a
foreign web page, 404 unknown model, 413 too large, 415 not announced as JSON, 503 the engine failed or was closed.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import AgenticError, ConfigError, DataError
from verl_agentic.base.types import Action, Message
from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import Generation
from verl_agentic.web.listening.request_guard import RequestGuard, require_token

with needs_extra("serve", what="serving a model"):
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    from verl_agentic.cpu.serving import http_wire as wire


class ChatFormat(Protocol):
    """The part of a codec that the server uses."""

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Returns the ids of a conversation, up to and with the header of the policy's turn."""
        ...

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Mapping[str, Any]]) -> Action:
        """Returns the action of the model."""
        ...


@dataclass(frozen=True, kw_only=True)
class Served:
    """A served model."""

    engine: InferenceEngine
    tokenizer: Any
    chat: ChatFormat
    name: str
    """The name that requests must give."""
    token: str = ""
    """Bearer token of clients; empty: no token needed."""


def make_app(served: Served) -> FastAPI:
    """Returns the ASGI application."""
    app = FastAPI(title="verl-agentic", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(RequestGuard, authorize=require_token(served.token),
                       write_refusal=lambda scope, code, message: _error_of(code, message))  # fmt: skip

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": served.name, **served.engine.stats()}

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        return await _answer_request(_list_models(served))

    @app.post("/v1/completions")
    async def completions(request: Request) -> JSONResponse:
        return await _answer_request(_complete_text(request, served))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> JSONResponse:
        return await _answer_request(_complete_chat(request, served))

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def unknown(request: Request, error: Any) -> JSONResponse:
        return _make_refusal(error.status_code, f"no such endpoint, got {request.method} {request.url.path}")

    return app


class _ModelNotFoundError(Exception):
    pass


class _GoneError(Exception):
    pass


async def _answer_request(work: Coroutine[Any, Any, dict[str, Any]]) -> JSONResponse:
    """Returns the response, or the error response."""
    try:
        return JSONResponse(await work)
    except _ModelNotFoundError as error:
        return _make_refusal(404, str(error))
    except (ConfigError, DataError) as error:
        return _make_refusal(400, str(error))
    except AgenticError as error:
        return _make_refusal(503, str(error))
    except _GoneError:
        return _make_refusal(499, "the client has gone")


def _make_refusal(code: int, message: str) -> JSONResponse:
    return JSONResponse(_error_of(code, message), status_code=code)


def _error_of(code: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if code < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


async def _list_models(served: Served) -> dict[str, Any]:
    model = {"id": served.name, "object": "model", "created": 0, "owned_by": "verl-agentic"}
    return {"object": "list", "data": [{**model, "max_model_len": served.engine.max_positions}]}


async def _complete_text(request: Request, served: Served) -> dict[str, Any]:
    completion_request = _parse_request(request, served, wire.CompletionRequest)
    prompt_ids = completion_request.prompt
    if isinstance(prompt_ids, str):
        prompt_ids = await asyncio.to_thread(served.tokenizer.encode, prompt_ids)
    generations = await _generate_choices(
        request, served, completion_request, prompt_ids,
        max_tokens=completion_request.max_tokens, logprobs=completion_request.logprobs is not None,
    )  # fmt: skip
    choices = await asyncio.to_thread(_to_texts, generations, completion_request, served.tokenizer)
    return wire.completion_of(completion_request, prompt_ids, choices)


def _to_texts(
    generations: Sequence[Generation], completion_request: wire.CompletionRequest, tokenizer: Any
) -> list[wire.Choice]:
    choices = []
    for generation in generations:
        text, stop_text = wire.text_of(generation, completion_request, tokenizer)
        logprobs = wire.completion_logprobs(generation, tokenizer)
        body = {"text": text, "logprobs": logprobs, "stop_reason": stop_text}
        choices.append(wire.Choice(generation=generation, body=body))
    return choices


async def _complete_chat(request: Request, served: Served) -> dict[str, Any]:
    chat_request = _parse_request(request, served, wire.ChatRequest)
    if chat_request.tool_choice not in ("auto", "none"):
        raise ConfigError(f"tool_choice must be auto or none, got {chat_request.tool_choice!r}; leave it out")
    tools = chat_request.tools if chat_request.tool_choice == "auto" else []
    try:
        prompt_ids = await served.chat.encode_prompt(chat_request.to_messages(), tools)
    except AgenticError:
        raise
    except Exception as cause:  # templates may raise any exception
        raise DataError(f"the chat template refuses the messages, got {cause}; fix them") from cause
    generations = await _generate_choices(
        request, served, chat_request, prompt_ids,
        max_tokens=chat_request.max_completion_tokens or chat_request.max_tokens, logprobs=chat_request.logprobs,
    )  # fmt: skip
    choices = [await _to_message(generation, chat_request, tools, served) for generation in generations]
    return wire.chat_completion_of(chat_request, prompt_ids, choices)


async def _to_message(
    generation: Generation, chat_request: wire.ChatRequest, tools: Sequence[Mapping[str, Any]], served: Served
) -> wire.Choice:
    """Returns the message of a generation. A call that cannot be parsed stays in the text."""
    text, stop_text = wire.text_of(generation, chat_request, served.tokenizer)
    logprobs = await asyncio.to_thread(wire.chat_logprobs, generation, served.tokenizer)
    body: dict[str, Any] = {"logprobs": logprobs, "stop_reason": stop_text}
    message: dict[str, Any] = {"role": "assistant", "content": text, "tool_calls": []}
    if tools and stop_text is None:
        action = await served.chat.decode_action(generation.token_ids, turn=0, tools=tools)
        if action.tool_calls and all(call.name and call.error_kind in _READABLE for call in action.tool_calls):
            calls = [
                {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}
                for call in action.tool_calls
            ]
            message["content"] = action.content or None
            message["tool_calls"] = [
                {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": call} for call in calls
            ]
            body["finish_reason"] = "tool_calls" if generation.finish_reason == "stop" else "length"
    return wire.Choice(generation=generation, body={"message": message, **body})


_READABLE = (None, "wrong_arguments", "unknown_tool", "too_many")
"""Kinds of errors of calls that can still be parsed; the client handles them."""


def _parse_request(request: Request, served: Served, kind: Any) -> Any:
    wire_request = wire.parse_request(kind, request.state.json)
    if wire_request.model != served.name:
        raise _ModelNotFoundError(f"no such model, got {wire_request.model!r}; this server has {served.name!r}")
    return wire_request


async def _generate_choices(
    request: Request,
    served: Served,
    wire_request: Any,
    prompt_ids: Sequence[int],
    *,
    max_tokens: int | None,
    logprobs: bool,
) -> list[Generation]:
    """Samples all choices; cancels them if the client disconnects."""
    params = [wire_request.params(choice, max_tokens=max_tokens, logprobs=logprobs) for choice in range(wire_request.n)]
    work = asyncio.gather(*(served.engine.generate(prompt_ids, param) for param in params))
    disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise _GoneError
        return list(work.result())
    finally:
        for waiting in (work, disconnect):
            waiting.cancel()
        await asyncio.gather(work, disconnect, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
