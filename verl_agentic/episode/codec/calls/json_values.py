"""JSON as arguments of a call may be: values that tools, templates and trainers can take.

Tolerant reading repairs JSON that a model almost got right. It is only on request, because it hides mistakes from
training.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from verl_agentic.base.env_card import needs_extra

UNREADABLE = (ValueError, RecursionError)
"""Exceptions that reading a text of the policy may raise."""
MAX_DEPTH = 100
"""Levels of objects and lists in the arguments of a call. JSON, pickle and templates recurse at least once per level,
and fail at about 1,000 levels."""
MAX_SIZE = 262_144
"""Characters and values in the arguments of a call, together."""
_INTEGERS = (-(2**63), 2**63 - 1)


def load_json(text: str) -> Any:
    """Returns the value that `text` is.

    Raises:
        ValueError: it is not JSON (nor are NaN and Infinity), has a key twice, or is a value that `problem_of` refuses;
        RecursionError: it is nested too deeply to be read at all.
    """
    if len(text) > MAX_SIZE:
        raise ValueError(f"longer than {MAX_SIZE} characters")
    value = _DECODER.decode(text)
    problem = problem_of(value)
    if problem is not None:
        raise ValueError(problem)
    return value


def read_json(text: str, offset: int) -> tuple[Any, int]:
    """Returns the value that begins at an offset, and the offset after it. `call_with` refuses what `load_json` does.

    Raises:
        ValueError: no value begins there; RecursionError: it is nested too deeply.
    """
    return _DECODER.raw_decode(text, offset)


def problem_of(value: Any) -> str | None:
    """Returns why a value cannot be an argument, or None.

    What passes can be given to tools, templates and trainers: JSON, pickle and msgpack can write it.
    """
    pending, size = [(value, 0)], 0
    while pending:
        item, depth = pending.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
            if size <= MAX_SIZE and not is_encodable(item):
                return "half of a surrogate pair"
        elif isinstance(item, dict):
            pending += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, int):
            if not _INTEGERS[0] <= item <= _INTEGERS[1]:
                return "an integer of more than 64 bits; write it as text"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return "a number that is not finite"
        elif item is not None:
            return f"a value of type {type(item).__name__}"
        if depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH} levels"
        if size > MAX_SIZE:
            return f"more than {MAX_SIZE} characters and values"
    return None


def is_encodable(text: str) -> bool:
    """Returns whether UTF-8 can encode the text: it has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def reason_of(cause: BaseException) -> str:
    """Returns why a text could not be read, in few words."""
    if isinstance(cause, json.JSONDecodeError):
        return f"{cause.msg}, character {cause.pos}"
    return f"{cause}" if isinstance(cause, ValueError) else "nested too deeply"


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):  # `json` keeps the last value and drops the others
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:64]!r} is written twice")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_make_object, parse_constant=_refuse_constant)


def repair_object(text: str) -> dict[str, Any] | None:
    """Returns the object that `text` was meant to be, or None when it is no attempt at one.

    Mends trailing commas, single quotes, missing closing braces, Python's literals, raw line breaks in strings, and
    a fence around the object.

    Raises:
        MissingDependencyError: `json-repair` is not installed.
    """
    try:
        value = _import_json_repair().loads(text)
    except (ValueError, RecursionError):  # numbers of thousands of digits, or nested too deeply
        return None
    return value if isinstance(value, dict) and value else None


def require_repair() -> None:
    """Fails early when tolerant reading is asked for and cannot be had.

    Raises:
        MissingDependencyError: `json-repair` is not installed.
    """
    _import_json_repair()


def _import_json_repair() -> Any:
    with needs_extra("repair", what="repairing calls"):
        import json_repair
    return json_repair
