"""A turn taken apart, and the arguments of its calls checked against the schemas of the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.tools.schema_check import argument_schema, explain
from verl_agentic.base.types import ToolCall
from verl_agentic.episode.codec.calls.json_values import is_encodable, problem_of
from verl_agentic.episode.codec.calls.untyped_values import property_schema, read_value

Schema = Mapping[str, Any]
_MAX_NAME_CHARS = 256


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


def parameters_of(tools: Sequence[Schema]) -> dict[str, Schema | None]:
    """Returns the schema of the arguments of every tool; None where a tool has none."""
    functions = [tool.get("function", {}) for tool in tools]
    return {function.get("name", ""): function.get("parameters") for function in functions}


def fit_arguments(call: ToolCall, parameters: Schema | None, *, raw: Mapping[str, str], check: bool = True) -> ToolCall:
    """Returns the call with arguments that fit their schema, or with an error that says what does not fit.

    Args:
        call: a call; one that has an error is returned as it is.
        parameters: the JSON schema of its arguments; None: no check.
        raw: the arguments as they were written, where the format has no types: `42` may be a number or a text.
        check: False: give types to `raw`, accept what does not fit, and do without an invalid schema.

    Raises:
        DataError: the schema is invalid.
    """
    if call.error is not None or parameters is None:
        return call
    try:
        typed = {k: read_value(raw[k], property_schema(parameters, k)) for k in call.arguments if k in raw}
        call = replace(call, arguments={**call.arguments, **typed}) if typed else call
        mismatches = argument_schema(parameters).mismatches(call.arguments) if check else []
    except DataError:
        if check:
            raise
        return call
    except RecursionError:  # a schema that refers to itself
        return bad_call("the arguments cannot be taken: nested too deeply", "wrong_arguments", name=call.name)
    if not mismatches:
        return call
    text = explain(call.name, mismatches).removeprefix("Error: ")
    return replace(call, error=text, error_kind="wrong_arguments")


def call_with(name: str, arguments: Any, *, call_id: str = "") -> ToolCall:
    """Returns the call; one with an error when its arguments are no object, or it holds what `problem_of` refuses.

    Every call that can be carried out is made here, whatever the protocol.
    """
    if len(name) > _MAX_NAME_CHARS or not is_encodable(name):
        return bad_call(f"the name of a tool is text of at most {_MAX_NAME_CHARS} characters", "malformed_json")
    problem = problem_of(arguments)
    if problem is not None:
        return bad_call(f"the arguments cannot be taken: {problem}", "malformed_json", name=name)
    if isinstance(arguments, dict):
        return ToolCall(name, arguments, call_id)
    excerpt = json.dumps(arguments, ensure_ascii=False)[:80]
    return bad_call(f"the arguments must be a JSON object, got {excerpt}", "not_an_object", name=name)
