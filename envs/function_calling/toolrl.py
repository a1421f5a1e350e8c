"""Rows from ToolRL's files: its raw JSON (`instruction`, `input`, `output`), or verl rows made of it.

The instruction lists the tools (`1. Name: ...`, `Description: ...`, `Parameters: {...}`), the input is a dialogue in
tags (`<user>`, `<think>`, `<tool_call>`, `<obs>`, `<response>`), the output is the next turn. Its calls are the
expected ones; a turn without a call is a row that needs an answer.

Paper: https://arxiv.org/abs/2504.13958, data: https://github.com/qiancheng0/ToolRL
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_agentic import DataError, EnvRow, Message, ToolCall
from verl_agentic.base.tools.schema_check import argument_schema

from .imported import make_row, read_records, to_rows
from .rows import SYSTEM

_TOOL = re.compile(r"^\d+\. Name: (.*)\nDescription: ((?:.*\n)*?)Parameters: (\{.*\})[ \t]*$", re.MULTILINE)
_PART = re.compile(r"<(user|think|tool_call|obs|response)>(.*?)</\1>", re.DOTALL)
_HEADING = "**Dialogue Records History**"
_TYPES = {
    **dict.fromkeys(("string", "str"), "string"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("float", "number"), "number"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("list", "array", "tuple"), "array"),
    **dict.fromkeys(("dict", "object"), "object"),
}


def from_toolrl(path: Path | str, *, system: str = SYSTEM, skip_bad_records: bool = False) -> list[EnvRow]:
    """Returns the rows of a file.

    The dialogue becomes messages, which the protocol of the run writes. ToolRL's own system prompt, which describes its
    output format, is left out. If an expected value does not have the parameter's type (many numbers are texts), the
    parameter of that row accepts any type.

    Args:
        path: a JSON list or JSON lines.
        system: the system message.
        skip_bad_records: leave out, with a warning, records that cannot become rows.

    Raises:
        DataError: a record is malformed, or calls a tool that it does not list.
    """
    path = Path(path)
    return to_rows(
        read_records(path), lambda record, number: _build_row(record, number, system), path=path, skip=skip_bad_records
    )


def _build_row(record: Mapping[str, Any], number: int, system: str) -> EnvRow:
    instruction, dialogue, output = _read_texts(record)
    tools = dict(_iter_tools(instruction))
    calls = [_convert_call(line, tools) for line in _list_call_lines(output.rpartition("</think>")[2])]
    for call in calls:
        _widen_schema(tools[call["name"]]["function"]["parameters"], call["arguments"])
    return make_row(
        source="toolrl",
        task_id=f"toolrl-{number}",
        prompt=[Message("system", system), *_iter_messages(dialogue)],
        tools=list(tools.values()),
        calls=calls,
        strings="exact",
    )


def _read_texts(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns instruction, dialogue and output."""
    values = [record.get(key) for key in ("instruction", "input", "output")]
    prompt, reward_model = record.get("prompt"), record.get("reward_model")
    if isinstance(prompt, list) and isinstance(reward_model, Mapping):
        texts = {m.get("role"): m.get("content") for m in prompt if isinstance(m, Mapping)}
        values = [texts.get("system"), texts.get("user"), reward_model.get("ground_truth")]
    if not all(isinstance(value, str) for value in values):
        raise DataError(
            "a record has instruction, input and output, or prompt and reward_model, "
            f"got {sorted(record)}; is this a file of ToolRL?"
        )
    return values[0], values[1], values[2]  # type: ignore[return-value]  # all three are texts


def _iter_tools(instruction: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, description, text in _TOOL.findall(instruction):
        declared = _parse_object(text, "the parameters of a tool")
        function = {
            "name": name.strip(),
            "description": description.strip(),
            "parameters": {
                "type": "object",
                "properties": {key: _convert_property(value) for key, value in declared.items()},
            },
        }
        yield function["name"], {"type": "function", "function": function}


def _convert_property(declared: Any) -> dict[str, Any]:
    """Returns the JSON schema of `{"description", "type", "default"}`; an empty default is none."""
    if not isinstance(declared, Mapping):
        return {"description": str(declared)}
    kind = str(declared.get("type", ""))
    json_type = _TYPES.get(re.split(r"[\s,\[]", kind.lower(), maxsplit=1)[0])
    note = "" if json_type else f" ({kind})" if kind else ""
    schema: dict[str, Any] = {"type": json_type} if json_type else {}
    schema["description"] = f"{declared.get('description', '')}{note}"
    if declared.get("default") not in ("", None):
        schema["default"] = declared["default"]
    return schema


def _widen_schema(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        schema = parameters["properties"].get(name)
        if schema is not None and argument_schema(schema).mismatches(value):
            schema.pop("type", None)


def _list_call_lines(turn: str) -> list[str]:
    return [
        line.strip()
        for kind, text in _PART.findall(turn)
        if kind == "tool_call"
        for line in text.strip().split("\n")
        if line.strip()
    ]


def _convert_call(line: str, tools: Mapping[str, Any]) -> dict[str, Any]:
    call = _parse_object(line, "a tool call")
    name, arguments = call.get("name"), call.get("parameters")
    if name not in tools or not isinstance(arguments, Mapping):
        raise DataError(f"a call names a listed tool and its parameters, got {line}; tools: {sorted(tools)}")
    return {"name": name, "arguments": dict(arguments)}


def _iter_messages(dialogue: str) -> Iterator[Message]:
    """Yields the dialogue as messages, without the assistant's thoughts."""
    dialogue = dialogue.strip().removeprefix(_HEADING)
    rest = _PART.sub("", dialogue).strip()
    if rest:
        raise DataError(f"all of the dialogue must stand in tags, got {rest[:80]!r} outside; mend the record")
    calls: list[ToolCall] = []
    for kind, text in _PART.findall(dialogue):
        text = text.strip()
        if kind == "user":
            yield Message("user", text)
        elif kind == "response":
            yield Message("assistant", text)
        elif kind == "tool_call":
            records = [_parse_object(line, "a tool call") for line in text.split("\n") if line.strip()]
            calls = [ToolCall(c.get("name", ""), c.get("parameters") or {}, f"call_{i}") for i, c in enumerate(records)]
            yield Message("assistant", "", tool_calls=tuple(calls))
        elif kind == "obs":
            yield from _iter_observations(text, calls)


def _iter_observations(text: str, calls: list[ToolCall]) -> Iterator[Message]:
    """Yields one message per call if the results can be separated, else one message."""
    try:
        results = json.loads(text)
    except ValueError:
        results = None
    first = calls[0] if calls else ToolCall("", {})
    if not isinstance(results, list) or len(results) != len(calls):
        yield Message("tool", text, name=first.name, call_id=first.call_id)
        return
    for call, result in zip(calls, results, strict=True):
        content = result.get("results", result) if isinstance(result, Mapping) else result
        yield Message("tool", json.dumps(content, ensure_ascii=False), name=call.name, call_id=call.call_id)


def _parse_object(text: str, subject: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DataError(f"{subject} must be a JSON object, got {text[:80]!r}; mend the record")
    return value
