"""The notation of Gemma's calls: `{code:<|"|>print(1)<|"|>,count:3,tags:[<|"|>a<|"|>],exact:true}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from verl_agentic.episode.codec.calls.json_values import load_json

_QUOTE = '<|"|>'
_QUOTED = (_QUOTE, '"', "{", "[")
_KEY = re.compile(r"([^:,{}\[\]<]*?)\s*:\s*")
_COLON = re.compile(r"\s*:\s*")
_SECOND = re.compile(r'<\|"\|>|\s[A-Za-z_][\w.-]*\s*:')
_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|[^,\]}]*')


def write_gemma(value: Any) -> str:
    """Returns a value in this notation."""
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{write_gemma(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(write_gemma, value)) + "]"
    return json.dumps(value)


def read_gemma(text: str, offset: int = 0) -> tuple[dict[str, Any], dict[str, str], int]:
    """Returns the object at an offset, the texts of its values without quotes, and the offset after it.

    Raises:
        ValueError: there is none; RecursionError: it is nested too deeply.
    """
    if not text.startswith("{", offset):
        raise ValueError(f"no arguments in braces at character {offset}")
    bare: dict[str, str] = {}
    value, end = _read_items(text, offset, closing="}", bare=bare)
    return value, bare, end


def _read_value(text: str, offset: int) -> tuple[Any, int]:
    if text.startswith(_QUOTE, offset):
        return _read_quoted(text, offset)
    if text.startswith("{", offset):
        return _read_items(text, offset, closing="}")
    if text.startswith("[", offset):
        return _read_items(text, offset, closing="]")
    match = _BARE.match(text, offset)
    if match is None or not match[0].strip() or _SECOND.search(match[0]):
        raise ValueError(f"no value, or more than one, at character {offset}")
    return _read_bare(match[0].strip()), match.end()


def _read_quoted(text: str, offset: int) -> tuple[str, int]:
    end = text.find(_QUOTE, offset + len(_QUOTE))
    if end < 0:
        raise ValueError(f"a text without an end at character {offset}")
    return text[offset + len(_QUOTE) : end], end + len(_QUOTE)


def _read_items(text: str, offset: int, *, closing: str, bare: dict[str, str] | None = None) -> tuple[Any, int]:
    """Reads the pairs of an object, or the values of a list, that opens at `offset`; notes texts without quotes."""
    pairs: dict[str, Any] = {}
    offset = _skip_space(text, offset + 1)
    while not text.startswith(closing, offset):
        key = str(len(pairs))
        if closing == "}":
            key, offset = _read_key(text, offset)
        if key in pairs:
            raise ValueError(f"the argument {key!r} is written twice")
        start = offset
        pairs[key], offset = _read_value(text, offset)
        if bare is not None and not text.startswith(_QUOTED, start):
            bare[key] = text[start:offset].strip()
        offset = _skip_space(text, offset)
        if text.startswith(",", offset):
            offset = _skip_space(text, offset + 1)
        elif not text.startswith(closing, offset):
            raise ValueError(f"neither a comma nor {closing} at character {offset}")
    return (pairs if closing == "}" else list(pairs.values())), offset + 1


def _read_key(text: str, offset: int) -> tuple[str, int]:
    """Returns the name before a value; templates quote those of nested objects, or do not."""
    match = _KEY.match(text, offset)
    if match is None and text.startswith(_QUOTE, offset):
        key, offset = _read_quoted(text, offset)
        match = _COLON.match(text, offset)
    else:
        key = match[1] if match is not None else ""
    if match is None:
        raise ValueError(f"no name of an argument at character {offset}")
    return key, match.end()


def _skip_space(text: str, offset: int) -> int:
    while offset < len(text) and text[offset].isspace():
        offset += 1
    return offset


def _read_bare(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)
