"""Validation of a call's arguments against the tool's JSON schema."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from verl_agentic.base.errors import DataError

_SHOWN_CHARS = 80
_SHOWN_MISMATCHES = 8
_BRANCHES = ("anyOf", "oneOf")
_OBJECT_KEYS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
_SCALAR_KEYS = frozenset({"type", "default", "title", "description"})
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_MAX_NEWEST = 256
_SUBSCHEMAS = ("properties", "$defs", "definitions")
_VALUES = ("enum", "const", "default", "examples")
_HOLD_FOR_NULL = frozenset({"const", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"})


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One fault in the arguments."""

    path: str
    """Path: `$` is the arguments, `$.items[0].sku` a value inside."""
    expected: str
    """Expectation of the schema."""
    got: str
    """The value as JSON; `nothing` if it is missing."""

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, got {self.got}"


class ArgumentSchema:
    """The JSON schema of a tool's arguments, compiled once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Compiles the value of `function.parameters`. `nullable: true`, as OpenAPI writes it, allows null.

        Raises:
            DataError: it is not a JSON schema, or has an external reference.
        """
        jsonschema, no_retrieval = _import_libraries()
        self.schema = schema = allow_null(schema)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as cause:
            raise DataError(
                f"the parameters of a tool are not a JSON schema at {json_path(cause.absolute_path)}, got "
                f"{cause.message}; fix the schema"
            ) from cause
        for reference in _iter_references(schema):
            if find_target(schema, reference) is None:
                raise DataError(f"a schema may only refer to itself, got $ref {reference!r}; write it out in place")
        self._jsonschema = jsonschema
        self._kind, self._registry = kind, no_retrieval
        self._validator = kind(schema, registry=no_retrieval)
        self._scalars = _scalar_properties(schema)

    def mismatches(self, arguments: Any) -> list[Mismatch]:
        """Returns the faults of the arguments, in the order of their paths; empty if they fit."""
        if self._are_plain(arguments):
            return []
        errors = sorted(self._validator.iter_errors(arguments), key=lambda error: [str(p) for p in error.absolute_path])
        mismatches = (mismatch for error in errors for mismatch in _iter_mismatches(error))
        return list(dict.fromkeys([*mismatches, *_not_finite(arguments, [])]))

    def _are_plain(self, arguments: Any) -> bool:
        """Fast check for schemas of scalars: True if the arguments fit; False is inconclusive."""
        types = self._scalars
        return (
            types is not None
            and isinstance(arguments, dict)
            and arguments.keys() <= types.keys()
            and all(name in arguments for name in self.schema.get("required", ()))
            and all(type(value) in types[name] for name, value in arguments.items())
        )

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a copy with all defaults; also inside objects, lists and the first matching branch of `anyOf` or
        `oneOf`."""
        return self._fill_defaults(self.schema, arguments)

    def _fill_defaults(self, schema: Any, value: Any) -> Any:
        schema = resolve_reference(self.schema, schema)
        if not isinstance(schema, Mapping):
            return copy.deepcopy(value)
        for keyword in _BRANCHES:
            branch = next((b for b in schema.get(keyword, ()) if self._is_valid(b, value)), None)
            if branch is not None:
                value = self._fill_defaults(branch, value)
        for part in schema.get("allOf", ()):
            value = self._fill_defaults(part, value)
        if isinstance(value, Mapping):
            return self._filled_object(schema.get("properties", {}), value)
        if isinstance(value, list) and "items" in schema:
            return [self._fill_defaults(schema["items"], item) for item in value]
        return copy.deepcopy(value)

    def _filled_object(self, properties: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
        filled = {key: self._fill_defaults(properties.get(key, True), item) for key, item in value.items()}
        for key, schema in properties.items():
            schema = resolve_reference(self.schema, schema)
            if key not in filled and isinstance(schema, Mapping) and "default" in schema:
                filled[key] = copy.deepcopy(schema["default"])
        return filled

    def without_nulls(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a copy without the keys of objects that are None and may not be, or that the schema does not name."""
        return self._without_nulls([self.schema], arguments)

    def _without_nulls(self, schemas: list[Any], value: Any) -> Any:
        schemas = [part for schema in schemas for part in self._iter_branches(schema)]
        if isinstance(value, list):
            items = [schema["items"] for schema in schemas if "items" in schema]
            return [self._without_nulls(items, item) for item in value]
        if not isinstance(value, Mapping):
            return value
        entries = {}
        for key, item in value.items():
            of_key = [schema["properties"][key] for schema in schemas if key in schema.get("properties", {})]
            of_key = of_key or [
                schema["additionalProperties"] for schema in schemas if schema.get("additionalProperties")
            ]
            if item is not None or any(self._is_valid(schema, None) for schema in of_key):
                entries[key] = self._without_nulls(of_key, item)
        return entries

    def _iter_branches(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """Yields a schema and its branches, at any depth."""
        schema = resolve_reference(self.schema, schema)
        if isinstance(schema, Mapping):
            yield schema
            for keyword in (*_BRANCHES, "allOf"):
                for branch in schema.get(keyword, ()):
                    yield from self._iter_branches(branch)

    def _is_valid(self, schema: Any, value: Any) -> bool:
        return self._validator.evolve(schema=resolve_reference(self.schema, schema)).is_valid(value)


def argument_schema(schema: Mapping[str, Any]) -> ArgumentSchema:
    """Returns the compiled schema; equal schemas are compiled once per process.

    Raises:
        DataError: see `ArgumentSchema`.
    """
    entry = _newest.get(id(schema))
    if entry is not None and entry[0] == schema:  # tools pass the same object every turn, so identity is a fast key
        return entry[1]
    compiled = _compile_schema(json.dumps(schema))
    if len(_newest) >= _MAX_NEWEST:
        _newest.clear()
    _newest[id(schema)] = copy.deepcopy(schema), compiled
    return compiled


def explain(name: str, mismatches: Iterable[Mismatch | str]) -> str:
    """Returns the error message for the policy on a call of tool `name`."""
    lines = [f"- {mismatch}" for mismatch in mismatches]
    hidden = len(lines) - _SHOWN_MISMATCHES
    more = [f"- and {hidden} more"] if hidden > 0 else []
    return "\n".join([f"Error: the arguments of {name!r} do not fit its schema", *lines[:_SHOWN_MISMATCHES], *more])


def _scalar_properties(schema: Any) -> dict[str, tuple[type, ...]] | None:
    """Returns the Python types of an object's properties; None if the schema demands more than their types.

    No floats: they may be infinite.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object" or not schema.keys() <= _OBJECT_KEYS:
        return None
    properties = schema.get("properties", {})
    if not all(isinstance(part, dict) and part.keys() <= _SCALAR_KEYS for part in properties.values()):
        return None
    types = {name: part.get("type") for name, part in properties.items()}
    kinds = {name: [kind] if isinstance(kind, str) else kind or [] for name, kind in types.items()}
    if not all(names and all(kind in _SCALARS for kind in names) for names in kinds.values()):
        return None
    return {name: tuple(kind for part in names for kind in _SCALARS[part]) for name, names in kinds.items()}


_newest: dict[int, tuple[Any, ArgumentSchema]] = {}
"""Id of a schema -> a copy of it, and the compiled schema."""


@lru_cache(maxsize=4096)
def _compile_schema(text: str) -> ArgumentSchema:
    return ArgumentSchema(json.loads(text))


@lru_cache(maxsize=1)
def _import_libraries() -> tuple[Any, Any]:
    import jsonschema  # takes a while, and only calls with arguments need it
    import jsonschema.validators
    from jsonschema_specifications import REGISTRY

    return jsonschema, REGISTRY  # not the default one, which fetches remote references


def _iter_mismatches(error: Any) -> Iterator[Mismatch]:
    """Yields an error of the library as mismatches."""
    path, value, operand, keyword = list(error.absolute_path), error.instance, error.validator_value, error.validator
    if keyword in _BRANCHES and error.context:
        branch = _select_branch(error.context)
        if branch:
            for inner in branch:
                yield from _iter_mismatches(inner)
            return
        expectations = dict.fromkeys(m.expected for inner in error.context for m in _iter_mismatches(inner))
        yield Mismatch(path=json_path(path), expected=" or ".join(expectations), got=shown_json(value))
    elif keyword == "required":
        for name in operand:
            if name not in value:
                schema = error.schema.get("properties", {}).get(name, {})
                yield Mismatch(path=json_path([*path, name]), expected=_describe_missing(schema), got="nothing")
    elif keyword == "additionalProperties" and isinstance(value, Mapping):
        properties = error.schema.get("properties", {})
        for name in value:
            if name not in properties:
                expected = f"no such name (known: {', '.join(properties) or 'none'})"
                yield Mismatch(path=json_path([*path, name]), expected=expected, got=shown_json(value[name]))
    else:
        yield Mismatch(path=json_path(path), expected=_describe_keyword(keyword, operand), got=shown_json(value))


def _not_finite(value: Any, path: list[Any]) -> Iterator[Mismatch]:
    """Yields numbers that Python reads and JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        yield Mismatch(path=json_path(path), expected="a finite number", got=shown_json(value))
    elif isinstance(value, (Mapping, list)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _not_finite(item, [*path, key])


def _select_branch(context: Iterable[Any]) -> list[Any]:
    """Returns the errors of the one branch that has the right type; empty when no branch, or more than one, has."""
    branches: dict[Any, list[Any]] = {}
    for error in context:
        branches.setdefault(error.schema_path[0], []).append(error)
    right = [b for b in branches.values() if not any(e.validator == "type" and not e.relative_path for e in b)]
    return right[0] if len(right) == 1 else []


def _describe_keyword(keyword: str, operand: Any) -> str:
    match keyword:
        case "type":
            return " or ".join([operand] if isinstance(operand, str) else operand)
        case "enum":
            return "one of " + ", ".join(map(shown_json, operand))
        case "const":
            return shown_json(operand)
        case "minimum":
            return f"at least {operand}"
        case "maximum":
            return f"at most {operand}"
        case _:
            return f"{keyword} {shown_json(operand)}"


def _describe_missing(schema: Any) -> str:
    """Returns a description of a missing value."""
    if not isinstance(schema, Mapping):
        return "a value"
    if "enum" in schema:
        return _describe_keyword("enum", schema["enum"])
    return _describe_keyword("type", schema["type"]) if "type" in schema else "a value"


def json_path(parts: Iterable[Any]) -> str:
    """Returns the path of a value inside the arguments, such as `$.items[0].sku`."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def shown_json(value: Any) -> str:
    """Returns a value as short JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _iter_references(schema: Any) -> Iterator[str]:
    """Yields all references; keys under `properties` are names, not keywords."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif key in _SUBSCHEMAS and isinstance(value, Mapping):
                for inner in value.values():
                    yield from _iter_references(inner)
            elif key not in _VALUES:
                yield from _iter_references(value)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _iter_references(inner)


def find_target(root: Any, reference: str) -> Any:
    """Returns the target of a reference into the schema itself; None without one."""
    if reference == "#":
        return root
    target: Any = root
    if not reference.startswith("#/"):
        return None
    for part in unquote(reference[2:]).split("/"):
        if isinstance(target, list):
            target = target[int(part)] if part.isdecimal() and int(part) < len(target) else None
        else:
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    return target


def allow_null(schema: Any) -> Any:
    """Returns a schema in which every part with `nullable: true` takes null as well."""
    if isinstance(schema, list):
        return [allow_null(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    parts: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _SUBSCHEMAS and isinstance(part, Mapping):
            parts[key] = {name: allow_null(value) for name, value in part.items()}
        else:
            parts[key] = part if key in _VALUES else allow_null(part)
    if parts.get("nullable") is not True:
        return parts
    del parts["nullable"]
    null = {"type": "null"}
    if parts.keys() & _HOLD_FOR_NULL:
        return {"anyOf": [parts, null]}
    if "type" in parts:
        types = parts["type"] if isinstance(parts["type"], list) else [parts["type"]]
        parts["type"] = [*types, *({"null"} - {*types})]
    if "enum" in parts:
        parts["enum"] = [*parts["enum"], *([] if None in parts["enum"] else [None])]
    return parts


def resolve_reference(root: Any, schema: Any) -> Any:
    """Returns the schema that a `$ref` into `root` points to; a schema without one is returned as it is."""
    num_steps = 0
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str) and num_steps < 32:
        schema, num_steps = find_target(root, schema["$ref"]), num_steps + 1
    return schema
