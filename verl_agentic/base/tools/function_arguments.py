"""The arguments of a function: their JSON schema from type hints and docstring, and their validation by pydantic."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.plain_schema import simplify_parameters
from verl_agentic.base.tools.schema_check import json_path, shown_json

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that OpenAI's function schema allows."""
_ARGS = ("Args:", "Arguments:")
_ENTRY = re.compile(r"(\w+)\s*(?:\(.*?\))?:\s*(.*)")
"""`name: text` or `name (type): text` of a Google-style docstring."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class FunctionArguments:
    """The arguments of a function."""

    name: str
    signature: inspect.Signature
    """Without the first parameter of a bound method."""
    model: type[BaseModel]
    """Its fields are numbered, because pydantic does not allow every name. Their aliases are the arguments' names."""
    schema: Mapping[str, Any]
    """The OpenAI function schema."""

    def bind(self, arguments: Mapping[str, Any]) -> inspect.BoundArguments | list[str]:
        """Returns the converted arguments with the function's own defaults, or an error text."""
        try:
            valid = self.model.model_validate(dict(arguments))
        except ValidationError as refused:
            errors = refused.errors(include_url=False, include_context=False)
            return [_describe_error(error, self.signature) for error in errors]
        names = zip(self.model.model_fields, self.signature.parameters, strict=True)
        values = {name: getattr(valid, field) for field, name in names if field in valid.model_fields_set}
        bound = inspect.BoundArguments(self.signature, cast("Any", values))
        bound.apply_defaults()
        return bound


def arguments_of(function: Callable[..., Any]) -> FunctionArguments:
    """Returns the arguments of a function or a bound method; cached.

    Raises:
        ConfigError: the function cannot be a tool; see `functions.tool`.
    """
    if inspect.ismethod(function):
        return _read_function(function.__func__, is_bound=True)
    if not inspect.isroutine(function):
        raise ConfigError(
            f"a tool must be a function, a bound method or a Tool, got {function!r}; write a function with def"
        )
    return _read_function(function, is_bound=False)


@lru_cache(maxsize=1024)
def _read_function(function: Callable[..., Any], *, is_bound: bool) -> FunctionArguments:
    name = function.__name__
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a tool's name must be 1 to 64 of a-z, A-Z, 0-9, _ and -, got {name!r}; rename the function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"tool {name!r} must return its result, got a generator function; return a list or text")
    try:
        signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError) as cause:
        raise ConfigError(
            f"the type hints of tool {name!r} cannot be read, got {type(cause).__name__}: {cause}; use types that the "
            "function's module defines or imports at its top level"
        ) from cause
    parameters = list(signature.parameters.values())[is_bound:]
    _check_parameters(name, parameters, hints)
    description, descriptions = _read_docstring(function)
    if unknown := sorted(descriptions.keys() - {parameter.name for parameter in parameters}):
        raise ConfigError(
            f"the docstring of tool {name!r} describes arguments that do not exist, got {unknown}; use the names "
            f"{[parameter.name for parameter in parameters]}"
        )
    model = _model_of(name, parameters, hints, descriptions)
    schema = {"name": name, "description": description, "parameters": _schema_of(model)}
    return FunctionArguments(
        name=name,
        signature=signature.replace(parameters=parameters),
        model=model,
        schema={"type": "function", "function": schema},
    )


def _check_parameters(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> None:
    """Raises a ConfigError that names the first parameter that cannot be an argument of a tool."""
    for parameter in parameters:
        if parameter.kind in _VARIADIC:
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise ConfigError(
                f"tool {name!r} must name all its arguments, got {stars}{parameter.name}; write arguments with type "
                "hints instead"
            )
        if parameter.name not in hints:
            is_self = parameter.name == "self"
            raise ConfigError(
                f"every argument of tool {name!r} must have a type hint, got {parameter.name!r} without one; "
                + ("remove the decorator and give the bound method to ToolEnv" if is_self else "add the type hint")
            )
        try:
            _schema_of(_model_of(name, [parameter], hints, {}))
        except Exception as cause:  # pydantic, or a hook of a foreign type
            hint = inspect.formatannotation(hints[parameter.name])
            raise ConfigError(
                f"argument {parameter.name!r} of tool {name!r} must have a type with a JSON schema, got {hint}; use "
                "str, int, float, bool, list, dict, Literal, an enum, a dataclass or a pydantic model"
            ) from cause


def _model_of(
    name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], descriptions: Mapping[str, str]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(parameters):
        options: dict[str, Any] = {} if parameter.default is parameter.empty else {"default": parameter.default}
        if parameter.name in descriptions:
            options["description"] = descriptions[parameter.name]
        fields[f"a{index}"] = (hints[parameter.name], Field(alias=parameter.name, **options))
    return create_model(name, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)


class _PlainSchema(GenerateJsonSchema):
    """Keeps the order of arguments and writes no titles, which only repeat the names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_PlainSchema)
    del schema["title"]
    return {"type": schema.pop("type"), **simplify_parameters(schema)}


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Returns the first paragraph, and the texts of a Google-style section `Args:` by name."""
    lines = (inspect.getdoc(function) or "").splitlines()
    paragraph = takewhile(lambda line: line.strip() and line not in _ARGS, lines)
    section = next((index for index, line in enumerate(lines, start=1) if line in _ARGS), len(lines))
    texts: dict[str, str] = {}
    name, entry_indent = "", 0
    for line in filter(str.strip, lines[section:]):
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            break
        entry_indent = entry_indent or indent
        entry = _ENTRY.fullmatch(line.strip()) if indent <= entry_indent else None
        if entry is not None:
            name, texts[entry[1]] = entry[1], entry[2]
        elif name:
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return " ".join(line.strip() for line in paragraph), texts


def _describe_error(error: Mapping[str, Any], signature: inspect.Signature) -> str:
    """Returns an error of pydantic as text for the policy."""
    path, got = json_path(error["loc"]), shown_json(error["input"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return f"{path}: no such name (known: {', '.join(signature.parameters) or 'none'}), got {got}"
    return f"{path}: {error['msg']}, got {'nothing' if error['type'] == 'missing' else got}"
