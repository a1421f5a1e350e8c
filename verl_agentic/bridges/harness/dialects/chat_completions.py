"""OpenAI chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.bridges.harness.dialects.wire import (
    MODEL,
    ChatAnswer,
    ChatAsked,
    SessionOptions,
    arguments_of,
    events,
    function_schema,
    limits_of,
    read_fields,
    system_text_of,
    text_of,
    thoughts_of,
    with_names,
)

_KNOWN = ("model", "messages", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "stop", "stream")
_FIXED: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": 0,
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
}
_UNUSED = (
    *("user", "metadata", "store", "stream_options", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    "safety_identifier",
)


def read(body: Any, *, options: SessionOptions, stored: Mapping[str, Any]) -> ChatAsked:
    """See `Dialect.read`."""
    fields = read_fields(body, known=_KNOWN, fixed=_FIXED, unused=_UNUSED, ignore=options.ignore)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError(f"messages must be a list that is not empty, got {messages!r}")
    tool, hides_tools = _read_choice(fields.get("tool_choice", "auto"))
    tools = () if hides_tools else tuple(_read_tool(tool_spec) for tool_spec in fields.get("tools") or ())
    limits = limits_of(
        max_tokens=fields.get("max_completion_tokens") or fields.get("max_tokens"),
        stop=fields.get("stop"),
        tool=tool,
        tools=tools,
    )
    return ChatAsked(
        messages=with_names(_read_message(message, options) for message in messages), tools=tools, limits=limits
    )


def write(answer: ChatAnswer, body: Mapping[str, Any]) -> dict[str, Any]:
    """See `Dialect.write`."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.calls:
        message |= {"content": answer.content or None, "tool_calls": list(map(_write_call, answer.calls))}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return {**_write_head(answer, "chat.completion"), "choices": [choice], "usage": _write_usage(answer)}


def stream(answer: ChatAnswer, body: Mapping[str, Any]) -> str:
    """See `Dialect.stream`."""
    head = _write_head(answer, "chat.completion.chunk")
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        for delta, finish in _iter_deltas(answer)
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks = [{**chunk, "usage": None} for chunk in chunks]
        chunks.append({**head, "choices": [], "usage": _write_usage(answer)})
    return events((("", chunk) for chunk in chunks), named=False) + "data: [DONE]\n\n"


def refuse(message: str, *, kind: str) -> dict[str, Any]:
    """See `Dialect.refuse`."""
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _iter_deltas(answer: ChatAnswer) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    if answer.content:
        yield {"content": answer.content}, None
    for index, call in enumerate(answer.calls):
        begun = {**_write_call(call), "index": index, "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [begun]}, None
        yield {"tool_calls": [{"index": index, "function": {"arguments": arguments_of(call)}}]}, None
    yield {}, answer.finish


def _write_head(answer: ChatAnswer, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": int(time.time()), "model": MODEL}


def _write_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_of(call)}
    return {"id": call.call_id, "type": "function", "function": function}


def _write_usage(answer: ChatAnswer) -> dict[str, int]:
    num_prompt, num_sampled = answer.num_context_tokens, answer.num_tokens
    return {"prompt_tokens": num_prompt, "completion_tokens": num_sampled, "total_tokens": num_prompt + num_sampled}


def _read_message(message: Any, options: SessionOptions) -> Message:
    if not isinstance(message, Mapping):
        raise ConfigError(f"a message must be an object, got {type(message).__name__}")
    role = {"developer": "system"}.get(message.get("role", ""), message.get("role"))
    content = (system_text_of if role == "system" else text_of)(message.get("content"), options=options)
    thoughts = thoughts_of(message.get("reasoning_content"), message.get("reasoning"))
    return replace(Message.from_dict({**message, "role": role, "content": content}), reasoning=thoughts)


def _read_tool(tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConfigError(f"a tool must be a function, got {str(tool)[:80]}")
    function_schema(function.get("name"), None, None)
    return tool


def _read_choice(choice: Any) -> tuple[str, bool]:
    """Returns the tool that must be called, and whether no tool may be called."""
    if choice in ("auto", "required", "none"):
        return "", choice == "none"
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ConfigError(f"tool_choice must be auto, required, none or a function, got {choice!r}")
    return function["name"], False
