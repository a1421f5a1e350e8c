"""Reads sections of a configuration into frozen dataclasses, and checks options of functions.

A dataclass declares every key of a section once: its type, its default, its bounds (`setting`) and, in the docstring
below the field, its meaning. `read_settings` refuses unknown keys, missing keys and wrong values, in the same words for
every section. `docs/configuration.md` is generated from the same classes.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from verl_agentic.base.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # Python 3.10 has no such decorator; type checkers alone need it

    def dataclass_transform(**options):
        return lambda cls: cls


T = TypeVar("T")
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "null",
    Any: "any value",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The numbers that a key accepts: never NaN, never infinite."""

    min: float = -math.inf
    max: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def hold(self, value: float) -> bool:
        """Tells whether a number is accepted."""
        return self.min <= value <= self.max and self.above < value < self.below

    def __str__(self) -> str:
        words = {"min": "at least", "above": "above", "max": "at most", "below": "below"}
        limits = {name: getattr(self, name) for name in words}
        parts = [f"{words[name]} {limit}" for name, limit in limits.items() if math.isfinite(limit)]
        return f"({' and '.join(parts)})" if parts else ""


def setting(
    default: Any = dataclasses.MISSING,
    *,
    factory: Any = dataclasses.MISSING,
    read: Callable[..., Any] | None = None,
    **bounds: float,
) -> Any:
    """Declares a key of a section.

    Args:
        default: its value when the section leaves it out; without one, the key is required.
        factory: makes the default, when it is mutable.
        read: `(value, *, name) -> Any` converts what the configuration holds; `name` is the path of the key.
        bounds: `min`, `max`, `above` and `below`, see `Bounds`; of each number in a list or mapping.
    """
    metadata = {"bounds": Bounds(**bounds), "read": read}
    return dataclasses.field(default=default, default_factory=factory, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
class Settings:
    """Base of a section: a subclass becomes a frozen dataclass, whose objects have only values of the right types."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for item in dataclasses.fields(self):
            check_value(getattr(self, item.name), hints[item.name], name=item.name, bounds=_bounds_of(item))
        self.check_together()

    def check_together(self) -> None:
        """Checks keys that depend on each other. An error begins with the name of a key.

        Raises:
            ConfigError: they do not go together.
        """


def read_settings(cls: Callable[..., T], values: Any, *, section: str, **defaults: Any) -> T:
    """Returns a dataclass of a section.

    Args:
        cls: the dataclass; a field that is a dataclass itself is read from a section of its own.
        values: what the configuration holds, as plain data; None is an empty section.
        section: its path, for errors.
        defaults: what it leaves out.

    Raises:
        ConfigError: an unknown or missing key, or a value that its key or the whole section cannot have.
    """
    hints, fields = hints_of(cls), {f.name: f for f in dataclasses.fields(cls) if f.init}  # pyright: ignore
    entries = check_keys(values, fields, section=section)
    entries = {n: _read_field(value, hints[n], fields[n], name=f"{section}.{n}") for n, value in entries.items()}
    entries = {**defaults, **entries}
    no_default = (name for name, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING)
    if missing := [name for name in no_default if name not in entries]:
        raise ConfigError(f"{section} must have {missing}, got {sorted(entries)}; add what is missing")
    try:
        return cls(**entries)
    except ConfigError as refused:
        starts_with_key = re.match(r"\w*", str(refused)).group() in fields  # pyright: ignore
        raise ConfigError(f"{section}{'.' if starts_with_key else ': '}{refused}") from refused


def _read_field(value: Any, kind: Any, field: dataclasses.Field[Any], *, name: str) -> Any:
    inner, read = dataclass_in(kind), field.metadata.get("read")
    if read is not None and not (value is None and _is_of_kind(None, kind, None)):
        value = read(value, name=name)
    elif isinstance(value, Mapping) and inner is not None:
        value = read_settings(inner, value, section=name)
    check_value(value, kind, name=name, bounds=_bounds_of(field))
    return tuple(value) if get_origin(kind) is tuple else value  # pyright: ignore


def _bounds_of(field: dataclasses.Field[Any]) -> Bounds:
    return field.metadata.get("bounds") or Bounds()


def check_keys(values: Any, names: Any, *, section: str) -> dict[str, Any]:
    """Returns a section as a dictionary; None is an empty one.

    Raises:
        ConfigError: it is no mapping, or has keys that are not known.
    """
    if values is not None and not isinstance(values, Mapping):
        raise ConfigError(f"{section} must be a section of keys, got {values!r}; known keys: {sorted(names)}")
    entries = {str(key): value for key, value in (values or {}).items()}
    if unknown := sorted(set(entries) - set(names)):
        hint = did_you_mean(unknown[0], names)
        raise ConfigError(f"unknown keys in {section}, got {unknown}; known ones: {sorted(names)}{hint}")
    return entries


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns the end of an error that names the nearest known name; empty where none is near."""
    meant = difflib.get_close_matches(name, list(names), n=1)
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
    accepted = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(
            f"the options of {what} must be a section of keys, got {options!r}; it has {sorted(accepted)}"
        )
    entries = {str(name): value for name, value in (options or {}).items()}
    if not takes_any and (unknown := sorted(set(entries) - set(accepted))):
        raise ConfigError(f"{what} has no options {unknown}; it has {sorted(accepted)}")
    if missing := sorted(n for n, p in accepted.items() if p.default is p.empty and n not in entries):
        raise ConfigError(f"{what} needs the options {missing}, got {sorted(entries)}; write them under options")
    hints = hints_of(function)
    for name, value in entries.items():
        check_value(value, hints.get(name, Any), name=f"option {name} of {what}")
    return entries


def check_value(value: Any, kind: Any, *, name: str, bounds: Bounds | None = None) -> None:
    """Raises when a value is not of the annotated type; an annotation that no configuration can be checked by passes.

    A whole number is a number, true and false are neither, NaN is none. A section of a dataclass is checked when it
    is read.

    Args:
        value: what a configuration holds.
        name: path of the key.
        bounds: of its numbers; None accepts infinite ones, too.

    Raises:
        ConfigError: naming the key.
    """
    if not _is_of_kind(value, kind, bounds):
        raise ConfigError(f"{name} must be {in_words(kind, bounds)}, got {value!r}; change it")


def _is_of_kind(value: Any, kind: Any, bounds: Bounds | None) -> bool:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_is_of_kind(value, arg, bounds) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if kind in (None, type(None)):
        return value is None
    if kind is bool or kind is str:
        return isinstance(value, kind)
    if kind in (int, float):
        is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return is_number and not math.isnan(value) and (bounds is None or bounds.hold(value))
    if _is_mapping(kind, origin):
        return isinstance(value, Mapping) and all(
            _is_of_kind(v, args[1], bounds) for v in value.values() if len(args) == 2
        )
    if is_sequence(kind):
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and all(_is_of_kind(item, args[0], bounds) for item in value if args)
    if dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping | kind)  # pyright: ignore
    return True


def _is_mapping(kind: Any, origin: Any) -> bool:
    base = origin or kind
    return isinstance(base, type) and issubclass(base, Mapping)


def is_sequence(kind: Any) -> bool:
    """Returns whether an annotation is a list or tuple of values, and no text."""
    base = get_origin(kind) or kind
    return isinstance(base, type) and issubclass(base, Sequence) and base is not str


def in_words(kind: Any, bounds: Bounds | None = None) -> str:
    """Returns what values an annotation accepts, such as `a whole number (at least 1) or null`."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(arg, bounds) for arg in args))
    if origin is Literal:
        return f"one of {list(args)}"
    if _is_mapping(kind, origin) or dataclasses.is_dataclass(kind):
        return f"a section of {_describe_items(args[1], bounds, 'keys') if len(args) == 2 else 'keys'}"
    if is_sequence(kind):
        return f"a list of {_describe_items(args[0], bounds, 'values') if args else 'values'}"
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind))) + _describe_bounds(kind, bounds)


def _describe_items(kind: Any, bounds: Bounds | None, otherwise: str) -> str:
    if get_origin(kind) is Literal:
        return f"values, each {in_words(kind)}"
    return {int: "whole numbers", float: "numbers", str: "texts"}.get(kind, otherwise) + _describe_bounds(kind, bounds)


def _describe_bounds(kind: Any, bounds: Bounds | None) -> str:
    return f" {bounds}" if kind in (int, float) and bounds is not None and str(bounds) else ""


def dataclass_in(kind: Any) -> Any:
    """Returns the dataclass that an annotation is, or may be."""
    candidates = (kind, *get_args(kind)) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next(
        (candidate for candidate in candidates if dataclasses.is_dataclass(candidate) and isinstance(candidate, type)),
        None,
    )


@functools.lru_cache(maxsize=512)
def hints_of(function: Any) -> dict[str, Any]:
    """Returns the annotations of a function or of a dataclass, by name."""
    try:
        return get_type_hints(function)
    except NameError:  # names that only a type checker imports: nothing can be said of the types
        return {f.name: Any for f in dataclasses.fields(function)} if dataclasses.is_dataclass(function) else {}
