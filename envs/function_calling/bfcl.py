"""Rows from files of the Berkeley Function-Calling Leaderboard (BFCL), version 1 to 4, single turn, Python and live.

A question file has one object per line: `id`, `question` (a list of turns, each a list of messages) and `function`
(name, description, parameters). The answer file has `id` and `ground_truth`:
`[{function: {parameter: [acceptable, ...]}}]`, where `""` among the acceptable values means that the parameter may be
left out, and objects inside a value list their acceptable values in the same way.

Data: https://github.com/ShishirPatil/gorilla/tree/main/berkeley-function-call-leaderboard
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic import DataError, EnvRow, Message
from verl_agentic.base.tools.schema_check import argument_schema

from .imported import make_row, read_records, to_rows
from .rows import SYSTEM

_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_OMITTED = ""  # BFCL's mark of an optional value
_MOST_VALUES = 4096


def from_bfcl(
    path: Path | str, *, answers: Path | str | None = None, system: str = SYSTEM, skip_bad_records: bool = False
) -> list[EnvRow]:
    """Returns the rows of one question file.

    Texts are compared as in BFCL, without case, spaces and punctuation. Type names that JSON schema does not have are
    replaced (`dict`, `float`, `tuple`, `any`). If an acceptable value does not fit its parameter (null for an optional
    text), the schema of that row accepts it.

    Args:
        path: the question file.
        answers: the file with its answers; by default that of the same name in the folder `possible_answer` beside it.
            Irrelevance files have none.
        system: system message for conversations without one.
        skip_bad_records: leave out, with a warning, records that cannot become rows.

    Raises:
        DataError: a record has several turns or no answer, or its answer does not fit its schema.
    """
    path = Path(path)
    answered = Path(answers) if answers is not None else path.parent / "possible_answer" / path.name
    answers_by_id = {r.get("id"): r.get("ground_truth") for r in read_records(answered)} if answered.is_file() else {}
    if answers is not None and not answers_by_id:
        raise DataError(
            f"no answers found, got {answered}; name the file in possible_answer that belongs to {path.name}"
        )
    return to_rows(
        read_records(path),
        lambda record, _: _build_row(record, answers_by_id, system),
        path=path,
        skip=skip_bad_records,
    )


def _build_row(record: Mapping[str, Any], answers: Mapping[Any, Any], system: str) -> EnvRow:
    task_id, turns, functions = (record.get(key) for key in ("id", "question", "function"))
    if not isinstance(task_id, str) or not isinstance(turns, list) or not isinstance(functions, list):
        raise DataError(f"a record has id, question and function, got {sorted(record)}; is this a question file?")
    if "java" in task_id:
        raise DataError(f"arguments in the syntax of Java or JavaScript cannot be judged, got {task_id}; leave it out")
    if len(turns) != 1:
        raise DataError(f"only one turn can be played without BFCL's own back ends, got {len(turns)}; leave it out")
    if task_id not in answers and "irrelevance" not in task_id:
        raise DataError(f"no answer for {task_id!r}; give the answer file")
    tools = [_convert_tool(function) for function in functions]
    parameters = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    calls = [_convert_call(call, parameters) for call in answers.get(task_id, ())]
    messages = [Message.from_dict(message) for message in turns[0]]
    if not messages or messages[0].role != "system":
        messages.insert(0, Message("system", system))
    return make_row(source="bfcl", task_id=task_id, prompt=messages, tools=tools, calls=calls, strings="lenient")


def _convert_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(function, Mapping) or not {"name", "parameters"} <= set(function):
        raise DataError(f"a function has name and parameters, got {function!r}; mend the record")
    return {"type": "function", "function": {**function, "parameters": _json_schema(function["parameters"])}}


def _json_schema(schema: Any) -> Any:
    """Returns a schema in which all types are those of JSON schema; names of properties are no keywords."""
    if not isinstance(schema, Mapping):
        return schema
    mapped = {key: _json_schema(value) if key == "items" else value for key, value in schema.items()}
    if isinstance(schema.get("properties"), Mapping):
        mapped["properties"] = {name: _json_schema(value) for name, value in schema["properties"].items()}
    if mapped.get("type") == "any":
        del mapped["type"]
    elif isinstance(mapped.get("type"), str):
        mapped["type"] = _TYPES.get(mapped["type"], mapped["type"])
    return mapped


def _convert_call(answer: Any, parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if not isinstance(answer, Mapping) or len(answer) != 1:
        raise DataError(f"an answer must be {{function: {{parameter: [values]}}}}, got {answer!r}; mend the record")
    ((name, values),) = answer.items()
    if name not in parameters:
        raise DataError(f"the answer calls {name!r}, got the functions {sorted(parameters)}; mend the record")
    schemas = parameters[name].get("properties", {})
    call: dict[str, Any] = {"name": name, "arguments": {}, "alternatives": {}, "optional": []}
    for parameter, choices in values.items():
        choices = choices if isinstance(choices, list) else [choices]
        acceptable = [v for choice in choices if choice != _OMITTED for v in _take_bounded(_iter_values(choice))]
        if parameter in schemas:
            _widen_schema(schemas[parameter], acceptable)
        if _OMITTED in choices:
            call["optional"].append(parameter)
            acceptable.append(_OMITTED)
        if not acceptable:
            raise DataError(f"parameter {parameter!r} must have an acceptable value, got {answer!r}; mend the record")
        first, *others = sorted(acceptable, key=lambda v: _is_misfit(v, schemas.get(parameter, {})))  # stable
        call["arguments"][parameter] = first
        if others:
            call["alternatives"][parameter] = others
    return call


def _widen_schema(schema: dict[str, Any], values: Sequence[Any]) -> None:
    """Lets the schema of a parameter accept all acceptable values, without showing them to the policy.

    BFCL's checker takes null where the answer lists it, whatever the declared type is. If another value does not fit,
    only the text of the schema stays, unless no value fits: that is a fault of the record.
    """
    misfits = [value for value in values if _is_misfit(value, schema)]
    if None in misfits and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list):
            schema["enum"] = [*schema["enum"], None]
    if len(misfits) < len(values) and any(_is_misfit(value, schema) for value in misfits):
        for key in schema.keys() - {"description", "default"}:
            del schema[key]


def _is_misfit(value: Any, schema: Mapping[str, Any]) -> bool:
    return bool(argument_schema(schema).mismatches(value))


def _take_bounded(values: Iterator[Any]) -> list[Any]:
    taken_values = list(itertools.islice(values, _MOST_VALUES + 1))
    if len(taken_values) > _MOST_VALUES:
        raise DataError(f"a parameter has more than {_MOST_VALUES} acceptable values; mend the record")
    return taken_values


def _iter_values(choice: Any) -> Iterator[Any]:
    """Yields all values that an acceptable one stands for."""
    if isinstance(choice, Mapping):
        options = [[*_iter_members(key, values)] for key, values in choice.items()]
        for picked in itertools.product(*options):
            yield dict(pair for pair in picked if pair is not None)
    elif isinstance(choice, list):
        for items in itertools.product(*([*_iter_values(item)] for item in choice)):
            yield list(items)
    else:
        yield choice


def _iter_members(key: str, values: Any) -> Iterator[tuple[str, Any] | None]:
    """Yields a member of an object with each of its values, and None where it may be left out."""
    for value in _as_list(values):
        if value == _OMITTED:
            yield None
        else:
            for inner in _iter_values(value):
                yield key, inner


def _as_list(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list) else [values]
