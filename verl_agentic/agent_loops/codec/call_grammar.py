"""The grammar of written calls: a name, its arguments, and an end, with nothing but white space between them.

A call that follows its grammar is read whole. What does not is refused with the place where it leaves the grammar, so
that no text of a call is dropped.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from verl_agentic.agent_loops.codec.gemma_arguments import read_gemma
from verl_agentic.agent_loops.codec.json_values import MAX_SIZE, UNREADABLE, load_json, read_json, reason_of
from verl_agentic.types import fill_arguments

if TYPE_CHECKING:
    from verl_agentic.agent_loops.codec.tool_formats import ToolFormat

MAX_ARGUMENTS = 256
"""Maximum number of arguments of a call."""
_SPACE = re.compile(r"\s*")
_CALL_KEYS = frozenset({"name", "arguments", "id", "type"})
"""Keys of a call that is one JSON object. OpenAI's messages have the last two."""


class CallError(ValueError):
    """A text is no call of its format."""

    def __init__(self, detail: str, *, name: str = "") -> None:
        super().__init__(detail)
        self.name = name


@dataclass(frozen=True)
class WrittenCall:
    """A call as it was written."""

    name: str
    arguments: Any
    untyped: Mapping[str, str] = field(default_factory=dict)
    """Texts of the arguments whose format has no types: `42` may be a number or a text."""
    call_id: str = ""


class Arguments(Protocol):
    """Notation of the arguments of a call."""

    def read(self, text: str, at: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the arguments at an offset, the untyped ones among them, and the offset after them.

        Raises:
            ValueError: there are no arguments at `at`, or text that `end` does not follow.
        """
        ...


@dataclass(frozen=True)
class JsonArguments:
    """Arguments as one JSON object."""

    def read(self, text: str, at: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the object; see `Arguments.read`."""
        value, at = read_json(text, at)
        return fill_arguments(value), {}, at


@dataclass(frozen=True)
class GemmaArguments:
    """Arguments in Gemma's notation."""

    def read(self, text: str, at: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the object; see `Arguments.read`."""
        return read_gemma(text, at)


class TaggedArguments:
    """Arguments between tags, one after the other."""

    def __init__(self, opening: str, closing: str, *, begins: str, frame: str = "") -> None:
        """Makes a notation.

        Args:
            opening: pattern of an opening tag. Group `name` is the argument; group `string`, where there is one, is
                `true` before text and `false` before JSON.
            closing: the closing tag. A value cannot contain it.
            begins: pattern of what begins an argument, also a misspelt one. A value cannot contain it: the argument
                before it was not closed.
            frame: text around a value that is not part of it.
        """
        self._opening = re.compile(opening)
        self._begins = re.compile(begins)
        self._closing = closing
        self._frame = frame

    def read(self, text: str, at: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the arguments; see `Arguments.read`."""
        arguments: dict[str, Any] = {}
        untyped: dict[str, str] = {}
        while not text.startswith(end, at):
            opening = self._opening.match(text, at)
            if opening is None:
                raise CallError(f"neither an argument nor the end of the call, character {at}")
            name, begin = opening["name"].strip(), opening.end()
            close = text.find(self._closing, begin)
            if close < 0 or self._begins.search(text, begin, close):
                raise CallError(f"the argument {name!r} is not closed")
            if name in arguments or len(arguments) == MAX_ARGUMENTS:
                raise CallError(f"the argument {name!r} is written twice, or one of more than {MAX_ARGUMENTS}")
            value = text[begin:close].removeprefix(self._frame).removesuffix(self._frame)
            arguments[name], is_typed = _read_marked(value, opening.groupdict().get("string"))
            if not is_typed:
                untyped[name] = value
            at = skip_space(text, close + len(self._closing))
        return arguments, untyped, at


def read_block(form: ToolFormat, text: str, at: int) -> tuple[list[WrittenCall], int]:
    """Returns the calls of a block whose opening ends at `at`, and the offset after the block.

    Raises:
        CallError: the text is no such block.
    """
    if form.unit is None:
        call, at = read_call(form, text, at)
        return [call], at
    calls: list[WrittenCall] = []
    while not (calls and text.startswith(form.block[1], at)):
        call, at = read_call(form, text, at)
        calls.append(call)
        at = skip_space(text, at)
    return calls, at + len(form.block[1])


def read_call(form: ToolFormat, text: str, at: int = 0) -> tuple[WrittenCall, int]:
    """Returns the call at an offset, and the offset after what ends it.

    Raises:
        CallError: the text is no such call.
    """
    start = at = skip_space(text, at)
    name, call_id = "", ""
    if form.header is not None:
        header = form.header.match(text, at)
        if header is None:
            raise CallError("it does not begin with the name of a tool")
        name, call_id, at = header["name"].strip(), header.groupdict().get("id", ""), header.end()
    arguments: Any = {}
    untyped: Mapping[str, str] = {}
    at = skip_space(text, at)
    try:
        if not text.startswith(form.end, at):
            arguments, untyped, at = form.notation.read(text, at, form.end)
    except UNREADABLE as cause:
        raise CallError(reason_of(cause), name=name) from cause
    at = skip_space(text, at)
    if not text.startswith(form.end, at):
        raise CallError(f"text after the arguments, character {at}", name=name)
    if at - start > MAX_SIZE:
        raise CallError(f"it has more than {MAX_SIZE} characters", name=name)
    call = WrittenCall(name, arguments, untyped, call_id) if form.header is not None else _read_object(arguments)
    return call, at + len(form.end)


def skip_space(text: str, at: int) -> int:
    """Returns the offset of the first character from `at` on that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


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


def _read_marked(value: str, is_text: str | None) -> tuple[Any, bool]:
    """Returns the value of an argument that may be marked as text or JSON, and whether it has a type now."""
    if is_text == "false":
        with contextlib.suppress(*UNREADABLE):
            return load_json(value), True
    return value, is_text == "true"
