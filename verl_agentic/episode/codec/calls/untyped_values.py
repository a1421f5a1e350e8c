"""Values that are written as text without a type: the schema of an argument decides what `42` is."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from verl_agentic.base.tools.schema_check import argument_schema, resolve_reference
from verl_agentic.episode.codec.calls.json_values import UNREADABLE, load_json, problem_of

_WORDS = {"true": True, "false": False, "none": None, "null": None}
_BRANCHES = ("allOf", "anyOf", "oneOf")
_PLAIN_KEYS = frozenset({"type", "title", "description", "default"})
_PLAIN_TYPES = (("integer", int), ("boolean", bool), ("number", int))
_MAX_LITERAL_CHARS = 10_000
"""Python's parser takes a lot of memory and stack for more."""


def property_schema(parameters: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the schema of one argument; an empty one, which everything fits, if it has no schema.

    Args:
        parameters: the schema of all arguments.
    """
    schemas = list(_property_schemas(parameters, parameters, name, depth=0))
    definitions = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    if len(schemas) == 1 and not definitions:
        return schemas[0]
    return {**definitions, "anyOf": schemas} if schemas else {}


def read_value(raw: str, schema: Mapping[str, Any]) -> Any:
    """Returns the value that a text stands for: its first reading that fits the schema.

    Where the schema takes text, the text is the value, unless it is just what JSON or Python writes for another value
    that the schema takes. If no reading fits, the first one is returned.

    Raises:
        DataError: the schema is not a JSON schema; RecursionError: it refers to itself.
    """
    kind = schema.get("type")
    is_plain = schema.keys() <= _PLAIN_KEYS
    if is_plain and kind == "string":
        return raw
    readings = (value for value in _iter_readings(raw, raw.strip()) if problem_of(value) is None)
    first = next(readings, raw)
    if is_plain and (kind, type(first)) in _PLAIN_TYPES:  # without the library, which takes ten times as long
        return first
    compiled = argument_schema(schema)
    default = raw if kind == "string" else first
    return next((value for value in chain((first,), readings) if not compiled.mismatches(value)), default)


def _iter_readings(raw: str, text: str) -> Iterator[Any]:
    """Yields the meanings of a text, those that lose nothing of it first."""
    value: Any = raw
    with contextlib.suppress(*UNREADABLE):
        value = load_json(text)
    if text in ("True", "False", "None"):  # how templates write them that print values
        yield _WORDS[text.lower()]
    if isinstance(value, dict | list) or (not isinstance(value, str) and json.dumps(value) == text):
        yield value
    yield raw
    yield text
    yield value
    if text.lower() in _WORDS:
        yield _WORDS[text.lower()]
    for number in (int, float):
        with contextlib.suppress(ValueError):
            yield number(text)
    with contextlib.suppress(*UNREADABLE, SyntaxError, MemoryError):
        yield _read_literal(text)


def _read_literal(text: str) -> Any:
    """Returns the list or object that Python's notation is. Raises an error if it is not one."""
    if not text.startswith(("[", "{", "(")) or len(text) > _MAX_LITERAL_CHARS:
        raise ValueError("no literal of a list or an object")
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
                raise ValueError("the keys of an object are different texts")
        elif isinstance(node, ast.Set):
            raise ValueError("JSON has no sets")
    return load_json(json.dumps(ast.literal_eval(tree)))


def _property_schemas(root: Any, schema: Any, name: str, *, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yields what the parts of a schema say about a property."""
    schema = resolve_reference(root, schema)
    if not isinstance(schema, Mapping) or depth > len(_BRANCHES):
        return
    properties = schema.get("properties")
    own_schema = properties.get(name) if isinstance(properties, Mapping) else None
    if isinstance(own_schema, Mapping):
        yield own_schema
        return
    for keyword in _BRANCHES:
        branches = schema.get(keyword)
        for branch in branches if isinstance(branches, list | tuple) else ():
            yield from _property_schemas(root, branch, name, depth=depth + 1)
    if isinstance(rest := schema.get("additionalProperties"), Mapping):
        yield rest
