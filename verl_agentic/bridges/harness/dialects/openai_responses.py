"""OpenAI Responses: `POST /v1/responses`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
from verl_agentic.bridges.harness.dialects.chat_completions import refuse
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
    with_names,
)

__all__ = ["read", "refuse", "stream", "write"]
_KNOWN = (
    *("model", "input", "instructions", "tools", "tool_choice", "max_output_tokens", "stream"),
    "previous_response_id",
)
_FIXED: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "top_logprobs": 0,
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "truncation": "disabled",
    "background": False,
}
_UNUSED = (
    *("user", "metadata", "store", "stream_options", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    *("safety_identifier", "include"),
)
_TEXTS = ("text", "input_text", "output_text")


def read(body: Any, *, options: SessionOptions, stored: Mapping[str, tuple[Message, ...]]) -> ChatAsked:
    """See `Dialect.read`."""
    fields = read_fields(body, known=_KNOWN, fixed=_FIXED, unused=_UNUSED, ignore=options.ignore)
    instructions, previous = fields.get("instructions"), fields.get("previous_response_id")
    if previous is not None and previous not in stored:
        raise ConfigError(f"previous_response_id must be an answer of this session, got {previous!r}")
    before = () if previous is None else stored[previous]
    if instructions:  # those of an earlier answer are not taken over
        before = (
            Message("system", system_text_of(instructions, options=options)),
            *(m for m in before if m.role != "system"),
        )
    tool, hides_tools = _read_choice(fields.get("tool_choice", "auto"))
    tools = () if hides_tools else tuple(_read_tool(tool_spec) for tool_spec in fields.get("tools") or ())
    limits = limits_of(max_tokens=fields.get("max_output_tokens"), stop=None, tool=tool, tools=tools)
    messages = with_names((*before, *_read_messages(fields.get("input"), options)))
    if not messages:
        raise ConfigError(f"input must not be empty, got {fields.get('input')!r}")
    return ChatAsked(messages=messages, tools=tools, limits=limits, is_stored=body.get("store") is not False)


def write(answer: ChatAnswer, body: Mapping[str, Any]) -> dict[str, Any]:
    """See `Dialect.write`."""
    is_cut = answer.finish == "length"
    return _write_response(
        answer,
        body,
        status="incomplete" if is_cut else "completed",
        incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
        output=_write_items(answer),
        usage={
            "input_tokens": answer.num_context_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.num_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.num_context_tokens + answer.num_tokens,
        },
    )


def stream(answer: ChatAnswer, body: Mapping[str, Any]) -> str:
    """See `Dialect.stream`."""
    parts = enumerate(_iter_events(answer, body))
    return events(
        ((name, {"type": name, "sequence_number": number, **data}) for number, (name, data) in parts), named=True
    )


def _iter_events(answer: ChatAnswer, body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = _write_response(answer, body, status="in_progress", incomplete_details=None, output=[], usage=None)
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(_write_items(answer)):
        place = {"output_index": index, "item_id": item["id"]}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {**item, **empty, "status": "in_progress"}
        yield "response.output_item.added", {"output_index": index, "item": added}
        if item["type"] == "message":
            yield from _text_events(item["content"][0], {**place, "content_index": 0})
        else:
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            call_fields = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", {**place, **call_fields}
        yield "response.output_item.done", {"output_index": index, "item": item}
    ended = write(answer, body)
    yield f"response.{ended['status']}", {"response": ended}


def _text_events(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


def _write_response(answer: ChatAnswer, body: Mapping[str, Any], **state: Any) -> dict[str, Any]:
    request_fields = {name: body.get(name) for name in ("instructions", "previous_response_id")}
    return {
        **{"id": answer.id, "object": "response", "created_at": int(time.time()), "model": MODEL, "error": None},
        **{"metadata": {}, "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0},
        **{
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            **request_fields,
            **state,
        },
    }


def _write_items(answer: ChatAnswer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.content or not answer.calls:
        text = {"type": "output_text", "text": answer.content, "annotations": [], "logprobs": []}
        head = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**head, "content": [text]})
    for call in answer.calls:
        called = {"id": f"fc_{call.call_id}", "type": "function_call", "status": "completed"}
        items.append({**called, "call_id": call.call_id, "name": call.name, "arguments": arguments_of(call)})
    return items


def _read_messages(request_input: Any, options: SessionOptions) -> list[Message]:
    """Returns the messages of an input. Thoughts, text and calls of one turn are one message."""
    if isinstance(request_input, str):
        return [Message("user", request_input)]
    if not isinstance(request_input, list):
        raise ConfigError(f"input must be text or a list, got {type(request_input).__name__}")
    messages: list[Message] = []
    thoughts = ""
    for item in request_input:
        if isinstance(item, Mapping) and item.get("type") == "reasoning":  # no answer has one, but a proxy may add it
            thoughts = _read_thoughts(item)
            continue
        message, last = _read_message(item, options), messages[-1] if messages else None
        if last is not None and last.role == message.role == "assistant" and message.tool_calls and not thoughts:
            messages[-1] = replace(last, tool_calls=(*last.tool_calls, *message.tool_calls))
        else:
            messages.append(replace(message, reasoning=thoughts) if message.role == "assistant" else message)
        thoughts = ""
    return messages


def _read_thoughts(item: Mapping[str, Any]) -> str:
    parts = item.get("content") or item.get("summary") or ()
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def _read_message(item: Any, options: SessionOptions) -> Message:
    if not isinstance(item, Mapping):
        raise ConfigError(f"an item of input must be an object, got {type(item).__name__}")
    kind = item.get("type", "message")
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        calls = [{"id": item.get("call_id"), "function": function}]
        return Message.from_dict({"role": "assistant", "content": "", "tool_calls": calls})
    if kind == "function_call_output":
        text = text_of(item.get("output"), options=options, kinds=_TEXTS)
        return Message("tool", text, call_id=str(item.get("call_id") or ""))
    if kind != "message":
        raise ConfigError(f"unsupported item of input, got {kind!r}; use messages and function calls")
    role = {"developer": "system"}.get(item.get("role", ""), item.get("role"))
    read_text = system_text_of if role == "system" else text_of
    return Message.from_dict({"role": role, "content": read_text(item.get("content"), options=options, kinds=_TEXTS)})


def _read_tool(tool: Any) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        raise ConfigError(f"a tool must be a function, got {str(tool)[:80]}; the gateway runs no tools itself")
    return function_schema(tool.get("name"), tool.get("description"), tool.get("parameters"))


def _read_choice(choice: Any) -> tuple[str, bool]:
    if choice in ("auto", "required", "none"):
        return "", choice == "none"
    if not isinstance(choice, Mapping) or choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        raise ConfigError(f"tool_choice must be auto, required, none or a function, got {choice!r}")
    return choice["name"], False
