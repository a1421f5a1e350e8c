"""A turn taken apart, and the arguments of its calls checked against the schemas of the tools."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_agentic.tools.schema_check import ArgumentSchema, argument_schema, explain
from verl_agentic.types import ToolCall

Schema = Mapping[str, Any]
UNREADABLE = (ValueError, RecursionError)
"""Exceptions that reading a text of the policy may raise."""
MAX_DEPTH = 100
"""Levels of objects and lists in the arguments of a call. JSON, pickle and templates recurse at least once per level,
and fail at about 1,000 levels."""
MAX_SIZE = 262_144
"""Characters and values in the arguments of a call, together."""
_MAX_NAME_CHARS = 256
_INTEGERS = (-(2**63), 2**63 - 1)
_LITERALS = {"True": True, "False": False, "None": None}  # as templates write them that print values


@dataclass(frozen=True, kw_only=True)
class ParsedTurn:
    """A turn, taken apart."""

    content: str
    """Text outside the calls."""
    answer: str | None = None
    """The answer, where it can be told from the content."""
    calls: tuple[ToolCall, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)


def bad_call(error: str, kind: str, *, name: str = "") -> ToolCall:
    """Returns a call that cannot be carried out, and why."""
    return ToolCall(name[:_MAX_NAME_CHARS], {}, error=error, error_kind=kind)


def load_json(text: str) -> Any:
    """Returns the value that `text` is.

    Raises:
        ValueError: it is no JSON (NaN and Infinity are none), or a value that `problem_of` refuses;
        RecursionError: it is nested too deeply to be read at all.
    """
    if len(text) > MAX_SIZE:
        raise ValueError(f"longer than {MAX_SIZE} characters")
    value = json.loads(text, parse_constant=_refuse)
    problem = problem_of(value)
    if problem is not None:
        raise ValueError(problem)
    return value


def problem_of(value: Any) -> str | None:
    """Returns why a value cannot be an argument, or None.

    What passes can be given to tools, templates and trainers: JSON, pickle and msgpack can write it.
    """
    left, size = [(value, 0)], 0
    while left:
        item, depth = left.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
            if size <= MAX_SIZE and not _is_encodable(item):
                return "half of a surrogate pair"
        elif isinstance(item, dict):
            left += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            left += [(part, depth + 1) for part in item]
        elif isinstance(item, int):
            if not _INTEGERS[0] <= item <= _INTEGERS[1]:
                return "an integer of more than 64 bits; write it as text"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return "a number that is not finite"
        elif item is not None:
            return f"a value of type {type(item).__name__}"
        if depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH} levels"
        if size > MAX_SIZE:
            return f"more than {MAX_SIZE} characters and values"
    return None


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parameters_of(tools: Sequence[Schema]) -> dict[str, Schema | None]:
    """Returns the schema of the arguments of every tool; None where a tool has none."""
    functions = [tool.get("function", {}) for tool in tools]
    return {function.get("name", ""): function.get("parameters") for function in functions}


def fit_arguments(call: ToolCall, parameters: Schema | None, *, raw: Mapping[str, str]) -> ToolCall:
    """Returns the call with arguments that fit their schema, or with an error that says what does not fit.

    Args:
        call: a call; one that has an error is returned as it is.
        parameters: the JSON schema of its arguments; None: no check.
        raw: the arguments as they were written, where the format has no types: `42` may be a number or a text.

    Raises:
        DataError: the schema is none; MissingDependencyError: `jsonschema` is not installed.
    """
    if call.error is not None or parameters is None:
        return call
    schema = argument_schema(parameters)
    try:
        mismatches = schema.mismatches(call.arguments)
        if mismatches and raw:
            fitted = {k: _fit(v, raw[k], parameters, k) if k in raw else v for k, v in call.arguments.items()}
            call, mismatches = replace(call, arguments=fitted), schema.mismatches(fitted)
    except RecursionError:  # a schema that refers to itself
        return bad_call("the arguments cannot be taken: nested too deeply", "wrong_arguments", name=call.name)
    if not mismatches:
        return call
    text = explain(call.name, mismatches).removeprefix("Error: ")
    return replace(call, error=text, error_kind="wrong_arguments")


def _fit(value: Any, raw: str, parameters: Schema, name: str) -> Any:
    """Returns the first meaning of an untyped value that fits its schema; the parser's where none does."""
    own = parameters.get("properties", {}).get(name)
    if not isinstance(own, Mapping):
        return value
    shared = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    schema: ArgumentSchema = argument_schema({**shared, **own})
    return next((meant for meant in (value, *_meanings(raw)) if not schema.mismatches(meant)), value)


def _meanings(raw: str) -> Iterator[Any]:
    with contextlib.suppress(*UNREADABLE):
        yield load_json(raw)
    if raw in _LITERALS:
        yield _LITERALS[raw]
    yield raw


def call_with(name: str, arguments: Any, *, call_id: str = "") -> ToolCall:
    """Returns the call; one with an error when its arguments are no object, or it holds what `problem_of` refuses.

    Every call that can be carried out is made here, whatever the protocol.
    """
    if len(name) > _MAX_NAME_CHARS or not _is_encodable(name):
        return bad_call(f"the name of a tool is text of at most {_MAX_NAME_CHARS} characters", "malformed_json")
    problem = problem_of(arguments)
    if problem is not None:
        return bad_call(f"the arguments cannot be taken: {problem}", "malformed_json", name=name)
    if isinstance(arguments, dict):
        return ToolCall(name, arguments, call_id)
    shown = json.dumps(arguments, ensure_ascii=False)[:80]
    return bad_call(f"the arguments must be a JSON object, got {shown}", "not_an_object", name=name)


def reason_of(cause: BaseException) -> str:
    """Returns why a text could not be read, in few words."""
    if isinstance(cause, json.JSONDecodeError):
        return f"{cause.msg}, character {cause.pos}"
    return f"{cause}" if isinstance(cause, ValueError) else "nested too deeply"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
