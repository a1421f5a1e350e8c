"""The notation of Gemma's calls: `{code:<|"|>print(1)<|"|>,count:3,tags:[<|"|>a<|"|>],exact:true}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_QUOTE = '<|"|>'
_KEY = re.compile(r"\s*([\w.-]+)\s*:\s*")
_BARE = re.compile(r"[^,\]}]*")


def write_gemma(value: Any) -> str:
    """Returns a value in this notation."""
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{write_gemma(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(write_gemma, value)) + "]"
    return json.dumps(value)


def read_gemma(text: str) -> dict[str, Any]:
    """Returns the object that `text` is.

    Raises:
        ValueError: it is none; RecursionError: it is nested too deeply.
    """
    value, end = _value(text, 0)
    if not isinstance(value, dict) or text[end:].strip():
        raise ValueError(f"no arguments in braces, got {text[:40]!r}")
    return value


def _value(text: str, at: int) -> tuple[Any, int]:
    if text.startswith(_QUOTE, at):
        end = text.find(_QUOTE, at + len(_QUOTE))
        if end < 0:
            raise ValueError(f"a text without an end at character {at}")
        return text[at + len(_QUOTE) : end], end + len(_QUOTE)
    if text.startswith("{", at):
        return _items(text, at, closing="}")
    if text.startswith("[", at):
        return _items(text, at, closing="]")
    match = _BARE.match(text, at)
    assert match is not None
    return _bare(match[0].strip()), match.end()


def _items(text: str, at: int, *, closing: str) -> tuple[Any, int]:
    """Reads the pairs of an object, or the values of a list, that opens at `at`."""
    pairs: list[tuple[str, Any]] = []
    at = _skip(text, at + 1)
    while not text.startswith(closing, at):
        key = ""
        if closing == "}":
            match = _KEY.match(text, at)
            if match is None:
                raise ValueError(f"no name of an argument at character {at}")
            key, at = match[1], match.end()
        value, at = _value(text, at)
        pairs.append((key, value))
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(closing, at):
            raise ValueError(f"neither a comma nor {closing} at character {at}")
    return (dict(pairs) if closing == "}" else [value for _, value in pairs]), at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _bare(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
