"""Schemas of tools in the form that chat templates print.

Templates of gpt-oss, Gemma 4 and Seed-OSS print `type`, `enum`, `items` and `properties` of an argument, and neither
`$ref` nor `anyOf`. So every schema that a prompt shows goes through here:

- A `$ref` is resolved in place. A definition inside itself is written as its type, title and description only.
- `X | null` is written as X with `nullable: true`, in `anyOf`, `oneOf` and lists of types.
- Unions of types or of enums become one list of types, or one enum. `const` is an enum of one value. An enum without
  a type gets that of its values.
- Other unions stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from verl_agentic.base.tools.schema_check import find_target
from verl_agentic.base.types import Tool

_MAX_PARTS = 2_000
"""Parts of a written schema. A larger one stays as it is."""
_DEFINITIONS = ("$defs", "definitions")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "nullable"})
_SCALAR = frozenset({"type", "enum", *_NOTES})
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class _StaysError(Exception):
    """The schema cannot be written in place."""


def list_schemas(tools: Iterable[Tool]) -> list[Mapping[str, Any]]:
    """Returns the schemas of tools as a prompt shows them: simple, or as they are for tools with `shows_own_schema`."""
    return [tool.schema if getattr(tool, "shows_own_schema", False) else simplify_tool(tool.schema) for tool in tools]


def simplify_tool(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an OpenAI function schema with simple parameters, the same object for equal schemas."""
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError):
        return schema  # no JSON; what renders it says so
    simple = _simplify_text(text)
    return schema if simple == schema else simple


def simplify_parameters(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the JSON schema of arguments without references and null branches; as it is if it would be too large."""
    try:
        return _Writer(parameters).write(parameters, frozenset({"#"}))
    except (_StaysError, RecursionError):
        return parameters


@lru_cache(maxsize=4096)
def _simplify_text(text: str) -> Mapping[str, Any]:
    schema = json.loads(text)
    function = schema.get("function") if isinstance(schema, dict) else None
    if isinstance(function, dict) and isinstance(function.get("parameters"), dict):
        function["parameters"] = simplify_parameters(function["parameters"])
    return schema


class _Writer:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._num_left = _MAX_PARTS

    def write(self, schema: Any, inside: frozenset[str]) -> Any:
        """Returns a schema; `inside` holds the references that led to it."""
        if not isinstance(schema, Mapping):
            return schema
        self._num_left -= 1
        if self._num_left < 0 or "$dynamicRef" in schema:
            raise _StaysError
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._write_target(reference, schema, inside)
        parts = {key: self._write_part(key, part, inside) for key, part in schema.items() if key not in _DEFINITIONS}
        return _join_union(_split_null(parts))

    def _write_target(self, reference: str, schema: Mapping[str, Any], inside: frozenset[str]) -> Any:
        target = find_target(self._root, reference)
        beside = {key: part for key, part in schema.items() if key != "$ref"}
        if not isinstance(target, Mapping) or not beside.keys() <= _NOTES:
            raise _StaysError
        if reference in inside:
            return {**{key: target[key] for key in ("type", "title", "description") if key in target}, **beside}
        return self.write({**target, **beside}, inside | {reference})

    def _write_part(self, key: str, part: Any, inside: frozenset[str]) -> Any:
        if key in _MAPS and isinstance(part, Mapping):
            return {name: self.write(value, inside) for name, value in part.items()}
        if key in _LISTS and isinstance(part, list):
            return [self.write(value, inside) for value in part]
        return self.write(part, inside) if key in _SINGLE else part


def _split_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Writes null among types or values as `nullable`, `const` as an enum, and the types of an enum's values."""
    if "const" in schema and "enum" not in schema:
        schema = {("enum" if key == "const" else key): part for key, part in schema.items()}
        schema["enum"] = [schema["enum"]]
    values, types = schema.get("enum"), schema.get("type")
    if types is None and values:
        kinds = list(dict.fromkeys(_KINDS.get(type(value), "") for value in values))
        types = kinds if all(kinds) else None
    if not isinstance(types, list):
        return schema
    others = [kind for kind in types if kind != "null"]
    if others and len(others) < len(types):
        if values is None or None in values:
            schema = {**schema, "nullable": True}
        if values is not None:
            schema = {**schema, "enum": [value for value in values if value is not None]}
        types = others
    return {**schema, "type": types[0] if len(types) == 1 else types}


def _join_union(schema: dict[str, Any]) -> dict[str, Any]:
    """Writes a union of one schema and null, of types, or of enums as one schema; leaves others."""
    keyword = next((key for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list)), "")
    branches = [branch for branch in schema.get(keyword, ()) if isinstance(branch, Mapping)]
    others = [branch for branch in branches if branch.get("type") != "null"]
    rest = {key: part for key, part in schema.items() if key != keyword}
    is_nullable = len(others) < len(branches) or any(branch.get("nullable") is True for branch in others)
    if not others or len(branches) < len(schema[keyword]) or not rest.keys() <= _NOTES:
        return schema
    if len(others) == 1:
        joint = others[0]
    elif keyword == "allOf" or not all(branch.keys() <= _SCALAR and "type" in branch for branch in others):
        return schema
    else:
        joint = _join_scalars(others)
    return {**joint, **rest, **({"nullable": True} if is_nullable else {})} if joint else schema


def _join_scalars(branches: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one schema for types or for enums; an empty one for a mixture, or where the parts are described."""
    types: list[Any] = []
    for branch in branches:
        types += branch["type"] if isinstance(branch["type"], list) else [branch["type"]]
    kinds = list(dict.fromkeys(types))
    joint: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    enums = [branch["enum"] for branch in branches if "enum" in branch]
    if (enums and len(enums) < len(branches)) or any(branch.keys() & {"description", "default"} for branch in branches):
        return {}
    return {**joint, "enum": [value for enum in enums for value in enum]} if enums else joint
