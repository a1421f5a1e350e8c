"""The grammar of written calls: a name, its arguments, and an end, with nothing but white space between them.

A call that follows its grammar is read whole. What does not is refused with the place where it leaves the grammar, so
that no text of a call is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.types import fill_arguments
from verl_agentic.episode.codec.calls.argument_notations import CallError, skip_space
from verl_agentic.episode.codec.calls.json_values import MAX_SIZE, UNREADABLE, reason_of
from verl_agentic.episode.codec.calls.tool_formats import ToolFormat

_CALL_KEYS = frozenset({"name", "arguments", "id", "type"})
"""Keys of a call that is one JSON object. OpenAI's messages have the last two."""


@dataclass(frozen=True)
class WrittenCall:
    """A call as it was written."""

    name: str
    arguments: Any
    untyped: Mapping[str, str] = field(default_factory=dict)
    """Texts of the arguments whose format has no types: `42` may be a number or a text."""
    call_id: str = ""


def read_block(form: ToolFormat, text: str, offset: int) -> tuple[list[WrittenCall], int]:
    """Returns the calls of a block whose opening ends at `offset`, and the offset after the block.

    Raises:
        CallError: the text is no such block.
    """
    if form.unit is None:
        call, offset = read_call(form, text, offset)
        return [call], offset
    calls: list[WrittenCall] = []
    while not (calls and text.startswith(form.block[1], offset)):
        call, offset = read_call(form, text, offset)
        calls.append(call)
        offset = skip_space(text, offset)
    return calls, offset + len(form.block[1])


def read_call(form: ToolFormat, text: str, offset: int = 0) -> tuple[WrittenCall, int]:
    """Returns the call at an offset, and the offset after what ends it.

    Raises:
        CallError: the text is no such call.
    """
    start = offset = skip_space(text, offset)
    name, call_id = "", ""
    if form.header is not None:
        header = form.header.match(text, offset)
        if header is None:
            raise CallError("it does not begin with the name of a tool")
        name, call_id, offset = header["name"].strip(), header.groupdict().get("id", ""), header.end()
    arguments: Any = {}
    untyped: Mapping[str, str] = {}
    offset = skip_space(text, offset)
    try:
        if not text.startswith(form.end, offset):
            arguments, untyped, offset = form.notation.read(text, offset, form.end)
    except UNREADABLE as cause:
        raise CallError(reason_of(cause), name=name) from cause
    offset = skip_space(text, offset)
    if not text.startswith(form.end, offset):
        raise CallError(f"text after the arguments, character {offset}", name=name)
    if offset - start > MAX_SIZE:
        raise CallError(f"it has more than {MAX_SIZE} characters", name=name)
    call = WrittenCall(name, arguments, untyped, call_id) if form.header is not None else _read_object(arguments)
    return call, offset + len(form.end)


def _read_object(value: Any) -> WrittenCall:
    """Returns the call that one JSON object is."""
    if not isinstance(value, dict):
        return WrittenCall("", value)
    name = value["name"] if isinstance(value.get("name"), str) else ""
    if "name" not in value or "arguments" not in value:
        raise CallError("a key is missing", name=name)
    if not isinstance(value["name"], str):
        raise CallError("the name is no text")
    if unknown := value.keys() - _CALL_KEYS:
        raise CallError(f"the key {min(unknown)!r} does not stand inside the arguments", name=name)
    return WrittenCall(name.strip(), fill_arguments(value["arguments"]))
