"""Values of rows as JSON has them, and what differs between two such values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.base.errors import DataError

_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def to_plain(value: Any, where: str) -> Any:
    """Returns a value with values of numpy, tuples and subclasses as those of JSON: dict, list, str, int, float, bool,
    None.

    Raises:
        DataError: JSON has no such value, or no such key of an object; the message begins with `where`.
    """
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError as cause:
            raise DataError(f"{where}: a text must be Unicode, got {text[:80]!r}: {cause}; repair it") from cause
        return text
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DataError(f"{where}: keys of objects must be texts, got {key!r}; convert it with str()")
        return {to_plain(key, where): to_plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        plain = value.tolist()
        if type(plain) is not type(value):
            return to_plain(plain, where)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    raise DataError(f"{where}: must be a value that JSON has, got {type(value).__name__} {value!r}; write it as text")


def looks_like_date(text: str) -> bool:
    """Returns whether JSON readers of Arrow may take a text for a time."""
    return _DATE.match(text) is not None


def drop_nulls(value: Any) -> Any:
    """Returns a value without the keys of objects that are None, at any depth. Items of lists stay."""
    if isinstance(value, Mapping):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [drop_nulls(item) for item in value]
    return value


def null_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of keys of objects that are None, such as `a.b[].c`."""
    return (inner for inner, item in _iter_keys(value, path) if item is None)


def value_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of keys of objects that are not None."""
    return (inner for inner, item in _iter_keys(value, path) if item is not None)


def _iter_keys(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{path}.{key}" if path else str(key)
            yield inner, item
            yield from _iter_keys(item, inner)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iter_keys(item, f"{path}[]")


def differences(field: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields field, before and after of each difference; `...` for a key that is not there."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            inner = f"{field}.{key}" if field else str(key)
            yield from differences(inner, before.get(key, ...), after.get(key, ...))
    elif isinstance(before, Sequence) and isinstance(after, Sequence) and not isinstance(before, str):
        if len(before) != len(after):
            yield field, before, after
        for index, (item, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(f"{field}[{index}]", item, other)
    elif type(before) is not type(after) or (before != after and not _are_nan(before, after)):
        yield field, before, after


def _are_nan(*values: Any) -> bool:
    return all(isinstance(value, float) and value != value for value in values)
