"""Notations of the arguments of a call: one JSON object, Gemma's, or tags one after the other."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verl_agentic.base.types import fill_arguments
from verl_agentic.episode.codec.calls.gemma_arguments import read_gemma
from verl_agentic.episode.codec.calls.json_values import UNREADABLE, load_json, read_json

MAX_ARGUMENTS = 256
"""Maximum number of arguments of a call."""
_SPACE = re.compile(r"\s*")


class CallError(ValueError):
    """A text is no call of its format."""

    def __init__(self, detail: str, *, name: str = "") -> None:
        super().__init__(detail)
        self.name = name


class Arguments(Protocol):
    """Notation of the arguments of a call."""

    def read(self, text: str, offset: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the arguments at an offset, the untyped ones among them, and the offset after them.

        Raises:
            ValueError: there are no arguments at `offset`, or text that `end` does not follow.
        """
        ...


@dataclass(frozen=True)
class JsonArguments:
    """Arguments as one JSON object."""

    def read(self, text: str, offset: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the object; see `Arguments.read`."""
        value, offset = read_json(text, offset)
        return fill_arguments(value), {}, offset


@dataclass(frozen=True)
class GemmaArguments:
    """Arguments in Gemma's notation."""

    def read(self, text: str, offset: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the object; see `Arguments.read`."""
        return read_gemma(text, offset)


class TaggedArguments:
    """Arguments between tags, one after the other."""

    def __init__(self, opening: str, closing: str, *, begins: str, frame: str = "") -> None:
        """Makes a notation.

        Args:
            opening: pattern of an opening tag. Group `name` is the argument; group `string`, where there is one, is
                `true` before text and `false` before JSON.
            closing: the closing tag. A value cannot contain it.
            begins: pattern of what begins an argument, also a misspelt one. A value cannot contain it: the argument
                before it was not closed.
            frame: text around a value that is not part of it.
        """
        self._opening = re.compile(opening)
        self._begins = re.compile(begins)
        self._closing = closing
        self._frame = frame

    def read(self, text: str, offset: int, end: str) -> tuple[Any, Mapping[str, str], int]:
        """Returns the arguments; see `Arguments.read`."""
        arguments: dict[str, Any] = {}
        untyped: dict[str, str] = {}
        while not text.startswith(end, offset):
            opening = self._opening.match(text, offset)
            if opening is None:
                raise CallError(f"neither an argument nor the end of the call, character {offset}")
            name, begin = opening["name"].strip(), opening.end()
            close = text.find(self._closing, begin)
            if close < 0 or self._begins.search(text, begin, close):
                raise CallError(f"the argument {name!r} is not closed")
            if name in arguments or len(arguments) == MAX_ARGUMENTS:
                raise CallError(f"the argument {name!r} is written twice, or one of more than {MAX_ARGUMENTS}")
            value = text[begin:close].removeprefix(self._frame).removesuffix(self._frame)
            arguments[name], is_typed = _read_marked(value, opening.groupdict().get("string"))
            if not is_typed:
                untyped[name] = value
            offset = skip_space(text, close + len(self._closing))
        return arguments, untyped, offset


def skip_space(text: str, offset: int) -> int:
    """Returns the offset of the first character from `offset` on that is not white space."""
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def _read_marked(value: str, is_text: str | None) -> tuple[Any, bool]:
    """Returns the value of an argument that may be marked as text or JSON, and whether it has a type now."""
    if is_text == "false":
        with contextlib.suppress(*UNREADABLE):
            return load_json(value), True
    return value, is_text == "true"
