"""Requests in the shapes of published agents, written by hand from the public documentation of their APIs.

A history is a list of `("user", text)`, `("turn", Answer)` and `("result", call id, text)`. A shape writes the body of
a request from it, and reads the answer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TASK = "What is 6*7?"
SYSTEMS = {"main": "You are an agent.", "title": "Write a title of at most 5 words.", "worker": "You search."}
PARAMETERS = {"type": "object", "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}}}
TOOLS = {"multiply": PARAMETERS, "task": {"type": "object", "properties": {"prompt": {"type": "string"}}}}
_numbers = itertools.count()


@dataclass(frozen=True)
class Answer:
    """A turn of the policy, as a client keeps it."""

    text: str
    calls: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    """Id, name and arguments of each call."""
    reasoning: str = ""


Event = tuple[Any, ...]
Write = Callable[[str, Sequence[Event], bool], dict[str, Any]]


@dataclass(frozen=True)
class Shape:
    """Writes requests and reads answers as a client does."""

    path: str
    write: Write
    """(system, history, whether it has tools) -> body."""
    read: Callable[[str], Answer]
    ignore: tuple[str, ...] = ()


def _events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# Chat completions.


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": TOOLS[name]}}


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in answer.calls
    ]


def _chat(system: str, history: Sequence[Event], parts: bool, **turn: Any) -> list[dict[str, Any]]:
    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if parts else text

    messages: list[dict[str, Any]] = [{"role": "system", "content": content(system)}] if system else []
    for kind, *values in history:
        if kind == "user":
            messages.append({"role": "user", "content": content(values[0])})
        elif kind == "result":
            messages.append({"role": "tool", "tool_call_id": values[0], "content": content(values[1])})
        else:
            said = {"role": "assistant", "content": content(values[0].text) if values[0].text else None, **turn}
            thoughts = {"reasoning_content": values[0].reasoning} if values[0].reasoning else {}
            messages.append({**said, **thoughts, **({"tool_calls": _calls(values[0])} if values[0].calls else {})})
    return messages


def _read_chat(text: str) -> Answer:
    message = json.loads(text)["choices"][0]["message"]
    calls = [
        (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in message.get("tool_calls") or ()
    ]
    return Answer(message["content"] or "", tuple(calls))


def _read_chat_stream(text: str) -> Answer:
    content, calls = "", {}
    for delta in (event["choices"][0]["delta"] for event in _events(text) if event["choices"]):
        content += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            known = calls.setdefault(call["index"], {"id": call.get("id"), "name": "", "arguments": ""})
            known["name"] += call["function"].get("name") or ""
            known["arguments"] += call["function"].get("arguments") or ""
    return Answer(content, tuple((c["id"], c["name"], json.loads(c["arguments"])) for c in calls.values()))


def opencode(system: str, history: Sequence[Event], has_tools: bool) -> dict[str, Any]:
    body = {"model": "m", "messages": _chat(system, history, False), "max_tokens": 3000, "stream": True}
    tools = {"tools": list(map(_function, TOOLS)), "tool_choice": "auto"} if has_tools else {}
    return {**body, **tools, "stream_options": {"include_usage": True}, "temperature": 0.55}


def openhands(system: str, history: Sequence[Event], has_tools: bool) -> dict[str, Any]:
    body = {"model": "m", "messages": _chat(system, history, True), "max_completion_tokens": 2000, "temperature": 0.0}
    return {**body, **({"tools": list(map(_function, TOOLS))} if has_tools else {})}


def mini_swe_agent(system: str, history: Sequence[Event], has_tools: bool) -> dict[str, Any]:
    """Calls are blocks in the text, and their results messages of the user."""
    written = [
        ("user", f"<returncode>0</returncode>\n<output>{one[2]}</output>") if one[0] == "result" else one
        for one in history
    ]
    return {"model": "m", "messages": _chat(system, written, False, provider_specific_fields=None)}


def langgraph(system: str, history: Sequence[Event], has_tools: bool) -> dict[str, Any]:
    """A graph without a prompt: only its sub-graphs have a message of the system."""
    body = {
        "model": "m",
        "messages": _chat("" if system == SYSTEMS["main"] else system, history, False),
        "stream": False,
    }
    return {**body, **({"tools": list(map(_function, TOOLS))} if has_tools else {})}


# Anthropic messages.


def _anthropic_tools() -> list[dict[str, Any]]:
    return [{"name": name, "description": name, "input_schema": schema} for name, schema in TOOLS.items()]


def claude_code(system: str, history: Sequence[Event], has_tools: bool) -> dict[str, Any]:
    number, cached = next(_numbers), {"cache_control": {"type": "ephemeral"}}
    messages: list[dict[str, Any]] = []
    for kind, *values in history:
        if kind == "user":
            reminder = {"type": "text", "text": "<system-reminder>\nNotes of the project.\n</system-reminder>"}
            messages.append({"role": "user", "content": [reminder, {"type": "text", "text": values[0], **cached}]})
        elif kind == "result":
            block = {"type": "tool_result", "tool_use_id": values[0], "content": [{"type": "text", "text": values[1]}]}
            messages.append({"role": "user", "content": [block]})
        else:
            blocks: list[Any] = [{"type": "text", "text": values[0].text}] if values[0].text else []
            blocks += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in values[0].calls]
            messages.append({"role": "assistant", "content": blocks})
    header = f"x-anthropic-billing-header: cc_version=2.1.{number}; cc_entrypoint=cli; cch=a{number}f{number};"
    blocks = [{"type": "text", "text": header}, {"type": "text", "text": system, **cached}]
    body = {"model": "m", "system": blocks, "messages": messages, "max_tokens": 3000, "stream": True}
    return {**body, "metadata": {"user_id": "u"}, "tools": _anthropic_tools() if has_tools else []}


def _read_anthropic_stream(text: str) -> Answer:
    said, calls = "", []
    for event in _events(text):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls.append([event["content_block"]["id"], event["content_block"]["name"], ""])
        elif event["type"] == "content_block_delta":
            said += event["delta"].get("text", "")
            if calls:
                calls[-1][2] += event["delta"].get("partial_json", "")
    return Answer(said, tuple((id, name, json.loads(arguments)) for id, name, arguments in calls))


# Responses.


def codex(system: str, history: Sequence[Event], has_tools: bool) -> dict[str, Any]:
    def said(role: str, kind: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    # The time of the request stands in the instructions of the developer.
    items = [said("developer", "input_text", f"<clock>{next(_numbers)}</clock>")]
    for kind, *values in history:
        if kind == "user":
            items.append(said("user", "input_text", values[0]))
        elif kind == "result":
            items.append({"type": "function_call_output", "call_id": values[0], "output": values[1]})
        else:
            items += [said("assistant", "output_text", values[0].text)] if values[0].text else []
            for id, name, arguments in values[0].calls:
                call = {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(arguments)}
                items.append(call)
    tools = [{"type": "function", "name": n, "strict": False, "parameters": s} for n, s in TOOLS.items()]
    body = {"model": "m", "instructions": system, "input": items, "store": False, "stream": True, "tool_choice": "auto"}
    unused = {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium"}, "prompt_cache_key": "k"}
    return {**body, **unused, "parallel_tool_calls": False, "tools": tools if has_tools else []}


def _read_responses_stream(text: str) -> Answer:
    items = next(
        e["response"]["output"] for e in _events(text) if e["type"] in ("response.completed", "response.incomplete")
    )
    texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
    calls = [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in items if i["type"] == "function_call"]
    return Answer("".join(texts), tuple(calls))


SHAPES = {
    "claude_code": Shape("messages", claude_code, _read_anthropic_stream),
    "opencode": Shape("chat/completions", opencode, _read_chat_stream, ("temperature",)),
    "codex": Shape("responses", codex, _read_responses_stream, ("reasoning", "parallel_tool_calls")),
    "openhands": Shape("chat/completions", openhands, _read_chat, ("temperature",)),
    "mini_swe_agent": Shape("chat/completions", mini_swe_agent, _read_chat),
    "langgraph": Shape("chat/completions", langgraph, _read_chat),
}
