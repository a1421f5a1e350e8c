"""Reads sections of a configuration: unknown keys, missing keys and values of a wrong type are refused by name.

A dataclass, or the keyword arguments of a function, says which keys there are and what they hold. So a reader and its
documentation cannot differ, and every section refuses a slip in the same words.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from verl_agentic.errors import ConfigError

T = TypeVar("T")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}


def read_settings(cls: Callable[..., T], values: Any, *, section: str, **defaults: Any) -> T:
    """Returns a dataclass of a section.

    Args:
        cls: the dataclass; a field that is a dataclass itself is read from a section of its own.
        values: what the configuration holds, as plain data; None is an empty section.
        section: its path, for errors.
        defaults: what it leaves out.

    Raises:
        ConfigError: an unknown or missing key, a value of a wrong type, or what the dataclass refuses.
    """
    hints, fields = _hints(cls), {f.name: f for f in dataclasses.fields(cls) if f.init}  # pyright: ignore
    given = check_keys(values, fields, section=section)
    for name, value in given.items():
        check_value(value, hints[name], name=f"{section}.{name}")
        if isinstance(value, Mapping) and (inner := _dataclass_in(hints[name])) is not None:
            given[name] = read_settings(inner, value, section=f"{section}.{name}")
    given = {**defaults, **given}
    no_default = (name for name, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING)
    if missing := [name for name in no_default if name not in given]:
        raise ConfigError(f"{section} must have {missing}, got {sorted(given)}; add what is missing")
    try:
        return cls(**given)
    except ConfigError as refused:
        if section in str(refused):
            raise
        raise ConfigError(f"{section}: {refused}") from refused


def check_keys(values: Any, known: Any, *, section: str) -> dict[str, Any]:
    """Returns a section as a dictionary; None is an empty one.

    Raises:
        ConfigError: it is no mapping, or has keys that are not known.
    """
    if values is not None and not isinstance(values, Mapping):
        raise ConfigError(f"{section} must be a section of keys, got {values!r}; known keys: {sorted(known)}")
    found = {str(key): value for key, value in (values or {}).items()}
    if unknown := sorted(set(found) - set(known)):
        hint = did_you_mean(unknown[0], known)
        raise ConfigError(f"unknown keys in {section}, got {unknown}; known ones: {sorted(known)}{hint}")
    return found


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns the end of an error that names the nearest known name; empty where none is near."""
    meant = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {meant[0]!r}?" if meant else ""


def check_options(function: Callable[..., Any], options: Any, *, what: str) -> dict[str, Any]:
    """Returns options that are to be given to a function as keyword arguments.

    Args:
        function: its keyword-only parameters are the options, their annotations the types.
        options: what is to be given.
        what: names the function in the error.

    Raises:
        ConfigError: no mapping, unknown or missing options, or a value of a wrong type.
    """
    parameters = inspect.signature(function).parameters.values()
    known = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"the options of {what} must be a section of keys, got {options!r}; it has {sorted(known)}")
    given = {str(name): value for name, value in (options or {}).items()}
    if not takes_any and (unknown := sorted(set(given) - set(known))):
        raise ConfigError(f"{what} has no options {unknown}; it has {sorted(known)}")
    if missing := sorted(n for n, p in known.items() if p.default is p.empty and n not in given):
        raise ConfigError(f"{what} needs the options {missing}, got {sorted(given)}; write them under options")
    hints = _hints(function)
    for name, value in given.items():
        check_value(value, hints.get(name, Any), name=f"option {name} of {what}")
    return given


def check_value(value: Any, kind: Any, *, name: str) -> None:
    """Raises when a value is not of the annotated type; an annotation that no configuration can be checked by passes.

    A whole number is a number, true and false are neither, NaN is none. A section of a dataclass is looked at when it
    is read.

    Raises:
        ConfigError: naming the key.
    """
    if not _fits(value, kind):
        raise ConfigError(f"{name} must be {_in_words(kind)}, got {value!r}; change it")


def _fits(value: Any, kind: Any) -> bool:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if kind in (None, type(None)):
        return value is None
    if kind is bool or kind is str:
        return isinstance(value, kind)
    if kind in (int, float):
        is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return is_number and not math.isnan(value)
    if _is_mapping(kind, origin):
        return isinstance(value, Mapping) and all(_fits(one, args[1]) for one in value.values() if len(args) == 2)
    if _is_sequence(kind, origin):
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and all(_fits(one, args[0]) for one in value if args)
    if dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping | kind)  # pyright: ignore
    return True


def _is_mapping(kind: Any, origin: Any) -> bool:
    found = origin or kind
    return isinstance(found, type) and issubclass(found, Mapping)


def _is_sequence(kind: Any, origin: Any) -> bool:
    found = origin or kind
    return isinstance(found, type) and issubclass(found, Sequence) and found is not str


def _in_words(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(one) for one in args)
    if origin is Literal:
        return f"one of {list(args)}"
    if _is_mapping(kind, origin) or dataclasses.is_dataclass(kind):
        return "a section of keys"
    if _is_sequence(kind, origin):
        return f"a list of {_in_words(args[0])}" if args and args[0] is not Any else "a list"
    return _WORDS.get(kind, str(kind))


def _dataclass_in(kind: Any) -> Any:
    """Returns the dataclass that an annotation is, or may be."""
    candidates = (kind, *get_args(kind)) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next((one for one in candidates if dataclasses.is_dataclass(one) and isinstance(one, type)), None)


@functools.lru_cache(maxsize=512)
def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError:  # names that only a type checker imports: nothing can be said of the types
        return {f.name: Any for f in dataclasses.fields(function)} if dataclasses.is_dataclass(function) else {}
