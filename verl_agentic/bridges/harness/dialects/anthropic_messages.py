"""Anthropic messages: `POST /v1/messages`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
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
    result_text_of,
    system_text_of,
    text_of,
    thoughts_of,
    with_names,
)

_KNOWN = ("model", "messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences", "stream")
_FIXED: Mapping[str, Any] = {"temperature": 1, "top_p": 1, "thinking": {"type": "disabled"}}
_UNUSED = ("metadata", "service_tier", "betas", "context_management", "container", "inference_geo")
_FINISHES = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {
    "invalid_request_error": "invalid_request_error",
    "episode_over": "not_found_error",
    "not_found": "not_found_error",
}


def read(body: Any, *, options: SessionOptions, stored: Mapping[str, Any]) -> ChatAsked:
    """See `Dialect.read`."""
    fields = read_fields(body, known=_KNOWN, fixed=_FIXED, unused=_UNUSED, ignore=options.ignore)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError(f"messages must be a list that is not empty, got {messages!r}")
    system = system_text_of(fields.get("system"), options=options, is_anthropic=True)
    choice = fields.get("tool_choice") or {"type": "auto"}
    if not isinstance(choice, Mapping) or choice.get("type") not in ("auto", "any", "tool", "none"):
        raise ConfigError(f"tool_choice must be auto, any, tool or none, got {choice!r}")
    if choice.get("disable_parallel_tool_use") and "disable_parallel_tool_use" not in options.ignore:
        raise ConfigError("disable_parallel_tool_use is not supported, got True; leave it out")
    tools = () if choice["type"] == "none" else tuple(_read_tool(tool_spec) for tool_spec in fields.get("tools") or ())
    tool = str(choice.get("name") or "") if choice["type"] == "tool" else ""
    limits = limits_of(max_tokens=fields.get("max_tokens"), stop=fields.get("stop_sequences"), tool=tool, tools=tools)
    before = [Message("system", system)] if system else []
    rest = [message for turn in messages for message in _read_messages(turn, options)]
    return ChatAsked(messages=with_names([*before, *rest]), tools=tools, limits=limits)


def write(answer: ChatAnswer, body: Mapping[str, Any]) -> dict[str, Any]:
    """See `Dialect.write`."""
    return {
        **_write_head(answer),
        "content": _write_blocks(answer),
        **_write_end(answer),
        "usage": _write_usage(answer),
    }


def stream(answer: ChatAnswer, body: Mapping[str, Any]) -> str:
    """See `Dialect.stream`."""
    return events(((name, {"type": name, **data}) for name, data in _iter_events(answer)), named=True)


def refuse(message: str, *, kind: str) -> dict[str, Any]:
    """See `Dialect.refuse`."""
    return {"type": "error", "error": {"type": _ERRORS[kind], "message": f"{kind}: {message}"}}


def _iter_events(answer: ChatAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = {**_write_head(answer), "content": [], "stop_reason": None, "stop_sequence": None}
    yield "message_start", {"message": {**begun, "usage": {**_write_usage(answer), "output_tokens": 0}}}
    for index, block in enumerate(_write_blocks(answer)):
        if block["type"] == "text":
            empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            arguments = arguments_of(answer.calls[index - (len(_write_blocks(answer)) - len(answer.calls))])
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": arguments}
        yield "content_block_start", {"index": index, "content_block": {**block, **empty}}
        yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    yield "message_delta", {"delta": _write_end(answer), "usage": {"output_tokens": answer.num_tokens}}
    yield "message_stop", {}


def _write_head(answer: ChatAnswer) -> dict[str, Any]:
    return {"id": answer.id, "type": "message", "role": "assistant", "model": MODEL}


def _write_blocks(answer: ChatAnswer) -> list[dict[str, Any]]:
    texts = [{"type": "text", "text": answer.content}] if answer.content or not answer.calls else []
    return texts + [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": dict(call.arguments)}
        for call in answer.calls
    ]


def _write_end(answer: ChatAnswer) -> dict[str, Any]:
    reason = "stop_sequence" if answer.stop_text else _FINISHES[answer.finish]
    return {"stop_reason": reason, "stop_sequence": answer.stop_text}


def _write_usage(answer: ChatAnswer) -> dict[str, int]:
    return {"input_tokens": answer.num_context_tokens, "output_tokens": answer.num_tokens}


def _read_messages(message: Any, options: SessionOptions) -> Iterator[Message]:
    """Yields the messages of one of Anthropic's: results of tools, then the text."""
    role, content = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if role not in ("user", "assistant", "system") or not isinstance(blocks, list):
        raise ConfigError(f"a message must have a role and content, got {str(message)[:80]}")
    if role == "system":
        yield Message("system", system_text_of(content, options=options, is_anthropic=True))
        return
    texts, thoughts, calls, results = [], [], [], 0
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_result":
            results += 1
            yield Message("tool", result_text_of(block.get("content")), call_id=str(block.get("tool_use_id") or ""))
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "function": function})
        elif kind == "thinking":  # no answer has one, but a proxy may have split it off
            thoughts.append(thoughts_of(block.get("thinking")))
        elif kind != "redacted_thinking":
            texts.append(block)
    if texts or not results:
        text = text_of(texts, options=options)
        yield replace(
            Message.from_dict({"role": role, "content": text, "tool_calls": calls}), reasoning="\n".join(thoughts)
        )


def _read_tool(tool: Any) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type", "custom") != "custom":
        raise ConfigError(f"a tool must have a schema, got {str(tool)[:80]}; the gateway runs no tools itself")
    return function_schema(tool.get("name"), tool.get("description"), tool.get("input_schema"))
