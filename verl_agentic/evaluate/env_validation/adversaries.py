"""Policies that must score 0 and break nothing: silence, an echo, and malformed turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.codec.codec import Codec, Schema

_HUGE = "huge " * 10_000
_DEEP = 3_000  # levels; more than Python's JSON parser allows
_MAX_TOOLS = 4  # number of tools whose arguments are malformed
_CONTROL = "".join(map(chr, [*range(32), 127, 0x85, 0x200B, 0x2028, 0xFEFF, 0xFFFE]))
_WRONG: Mapping[str, Any] = {"string": {"not": ["a", "string"]}, "array": "not a list", "object": "not an object"}


NextText = Callable[[Sequence[Message]], str]
"""The text of the next turn as a function of the conversation, without its end-of-turn token."""


@dataclass(frozen=True, kw_only=True)
class Adversary:
    """A policy that must not succeed."""

    name: str
    begin: Callable[[], NextText]
    """Makes the policy of one episode."""
    is_answered: bool = False
    """Whether a tool may execute its call, so that the tool's answer is not a leak."""


NULL = Adversary(name="null", begin=lambda: lambda messages: "")
ECHO = Adversary(name="echo", begin=lambda: lambda messages: messages[-1].content)


def malformed(
    codec: Codec, tools: Sequence[Schema], special_tokens: Sequence[str]
) -> tuple[list[Adversary], list[str]]:
    """Returns the malformed turns, each followed by silence, and the names of turns that the protocol cannot write.

    Args:
        codec: writes turns in its protocol.
        tools: schemas of the environment's tools.
        special_tokens: of the tokenizer.
    """
    probes: list[Adversary] = []
    unwritable: list[str] = []
    special = "".join(special_tokens)
    turns = [turn for schema in tools[:_MAX_TOOLS] for turn in _iter_call_turns(schema, special)]
    for turn in [*turns, *_iter_turns(example_call(tools[0]) if tools else _UNKNOWN, special)]:
        try:
            text = turn.write(codec)
        except Exception:  # some protocols cannot write some turns
            unwritable.append(turn.name)
        else:
            probes.append(Adversary(name=turn.name, begin=_say_once(text), is_answered=turn.is_answered))
    return probes, unwritable


def example_call(schema: Schema) -> ToolCall:
    """Returns a call with meaningless arguments of the schema's types."""
    return _make_call(schema, _make_example)


@dataclass(frozen=True)
class _Turn:
    """A malformed turn before the protocol writes it."""

    name: str
    write: Callable[[Codec], str]
    is_answered: bool = False


_UNKNOWN = ToolCall("no_such_tool", {"x": 1})


def _iter_turns(call: ToolCall, special: str) -> Iterator[_Turn]:
    yield _Turn("truncated call", lambda codec: _cut_text(_render_calls(codec, call)))
    yield _Turn("empty call", lambda codec: _empty_call(_render_calls(codec, call)))
    yield _Turn("unknown tool", lambda codec: _render_calls(codec, _UNKNOWN))
    yield _Turn("call without a name", lambda codec: _render_calls(codec, ToolCall("", {})))
    yield _Turn("two calls", lambda codec: _render_calls(codec, call, call), True)
    yield _Turn("huge text", lambda codec: _HUGE)
    yield _Turn("special tokens", lambda codec: special + _render_calls(codec, call) + special, True)
    yield _Turn("control characters", lambda codec: _CONTROL)


def _iter_call_turns(schema: Schema, special: str) -> Iterator[_Turn]:
    name, call = schema["function"]["name"], example_call(schema)
    needs_arguments = bool((schema["function"].get("parameters") or {}).get("required"))
    yield _Turn(f"{name}: no arguments", _make_writer(ToolCall(name, {})), not needs_arguments)
    yield _Turn(f"{name}: unknown argument", _make_writer(ToolCall(name, {"no_such_argument": 1})), not needs_arguments)
    if not call.arguments:
        return
    yield _Turn(f"{name}: wrong argument types", _make_writer(_make_call(schema, _make_wrong_value)))
    yield _Turn(f"{name}: deeply nested argument", lambda codec: _nest_argument(codec, call))
    for label, text in (("huge", _HUGE), ("special tokens", special), ("control characters", _CONTROL)):
        filled_call = _make_call(schema, lambda kind, text=text: _fill_text(kind, text))
        yield _Turn(f"{name}: {label} in arguments", _make_writer(filled_call), True)


def _make_writer(call: ToolCall) -> Callable[[Codec], str]:
    return lambda codec: _render_calls(codec, call)


def _render_calls(codec: Codec, *calls: ToolCall) -> str:
    return codec.render_action(Message("assistant", "", tool_calls=calls))


def _say_once(text: str) -> Callable[[], NextText]:
    def begin() -> NextText:
        unsaid = [text]
        return lambda messages: unsaid.pop() if unsaid else ""

    return begin


def _cut_text(text: str) -> str:
    return text[: len(text) * 2 // 3]


def _empty_call(text: str) -> str:
    """Returns the call without content. Raises ValueError if the protocol writes no braces."""
    hollow = re.sub(r"\{.*\}", "", text, flags=re.DOTALL)
    if hollow == text:
        raise ValueError(text)
    return hollow


def _nest_argument(codec: Codec, call: ToolCall) -> str:
    """Returns the call with its first argument nested too deeply."""
    marker = "@nested@"
    text = _render_calls(codec, ToolCall(call.name, {**call.arguments, next(iter(call.arguments)): marker}))
    nested = "[" * _DEEP + "]" * _DEEP
    return text.replace(f'"{marker}"', nested).replace(marker, nested)


def _make_call(schema: Schema, value_of: Callable[[Mapping[str, Any]], Any]) -> ToolCall:
    function = schema["function"]
    properties = (function.get("parameters") or {}).get("properties") or {}
    return ToolCall(function["name"], {name: value_of(kind) for name, kind in properties.items()})


def _make_example(kind: Mapping[str, Any]) -> Any:
    if kind.get("enum"):
        return kind["enum"][0]
    for branch in kind.get("anyOf") or kind.get("oneOf") or ():
        return _make_example(branch)
    examples = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}, "null": None}
    return examples.get(_read_type(kind), "x")


def _make_wrong_value(kind: Mapping[str, Any]) -> Any:
    return _WRONG.get(_read_type(kind), ["neither", {"this": "nor"}, "that"])


def _fill_text(kind: Mapping[str, Any], text: str) -> Any:
    return text if _read_type(kind) == "string" else _make_example(kind)


def _read_type(kind: Mapping[str, Any]) -> str:
    name = kind.get("type", "string")
    return name if isinstance(name, str) else name[0]
