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


def read_gemma(text: str, at: int = 0) -> tuple[dict[str, Any], dict[str, str], int]:
    """Returns the object at an offset, the texts of its values without quotes, and the offset after it.

    Raises:
        ValueError: there is none; RecursionError: it is nested too deeply.
    """
    if not text.startswith("{", at):
        raise ValueError(f"no arguments in braces at character {at}")
    bare: dict[str, str] = {}
    value, end = _items(text, at, closing="}", bare=bare)
    return value, bare, end


def _value(text: str, at: int) -> tuple[Any, int]:
    if text.startswith(_QUOTE, at):
        return _quoted(text, at)
    if text.startswith("{", at):
        return _items(text, at, closing="}")
    if text.startswith("[", at):
        return _items(text, at, closing="]")
    match = _BARE.match(text, at)
    if match is None or not match[0].strip() or _SECOND.search(match[0]):
        raise ValueError(f"no value, or more than one, at character {at}")
    return _bare(match[0].strip()), match.end()


def _quoted(text: str, at: int) -> tuple[str, int]:
    end = text.find(_QUOTE, at + len(_QUOTE))
    if end < 0:
        raise ValueError(f"a text without an end at character {at}")
    return text[at + len(_QUOTE) : end], end + len(_QUOTE)


def _items(text: str, at: int, *, closing: str, bare: dict[str, str] | None = None) -> tuple[Any, int]:
    """Reads the pairs of an object, or the values of a list, that opens at `at`; notes texts without quotes."""
    pairs: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while not text.startswith(closing, at):
        key = str(len(pairs))
        if closing == "}":
            key, at = _key(text, at)
        if key in pairs:
            raise ValueError(f"the argument {key!r} is written twice")
        start = at
        pairs[key], at = _value(text, at)
        if bare is not None and not text.startswith(_QUOTED, start):
            bare[key] = text[start:at].strip()
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(closing, at):
            raise ValueError(f"neither a comma nor {closing} at character {at}")
    return (pairs if closing == "}" else list(pairs.values())), at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    """Returns the name before a value; templates quote those of nested objects, or do not."""
    match = _KEY.match(text, at)
    if match is None and text.startswith(_QUOTE, at):
        key, at = _quoted(text, at)
        match = _COLON.match(text, at)
    else:
        key = match[1] if match is not None else ""
    if match is None:
        raise ValueError(f"no name of an argument at character {at}")
    return key, match.end()


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _bare(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)
