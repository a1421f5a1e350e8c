"""Reads turns with the reader of a tool format, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from verl.experimental.agent_loop.tool_parser import ToolParser

from verl_agentic.base.types import CALL_ERRORS
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn
from verl_agentic.episode.codec.calls.tool_calls import CallReader
from verl_agentic.episode.codec.calls.tool_formats import FORMATS


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


TEXT, INTEGER = {"type": "string"}, {"type": "integer"}


class TextTokenizer:
    """Its tokens are characters, so that texts can be read with any parser."""

    pad_token = "<|pad|>"

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    def convert_tokens_to_ids(self, token: str) -> int:
        return 7


def reader(name: str, *, repair: bool = False) -> CallReader:
    parser = ToolParser.get_tool_parser(name, TextTokenizer())
    return CallReader(parser, tool_format=FORMATS[name], repair=repair)


def read(name: str, text: str, *, repair: bool = False, tools: Any = (), thinks: bool = False) -> ParsedTurn:
    return asyncio.run(reader(name, repair=repair).read(text, turn=3, tools=tools, starts_in_reasoning=thinks))


def kinds(parsed: ParsedTurn) -> list[str | None]:
    assert all((call.error is None) == (call.error_kind is None) for call in parsed.calls)
    assert {call.error_kind for call in parsed.calls} <= {*CALL_ERRORS, None}
    return [call.error_kind for call in parsed.calls]


everywhere = pytest.mark.parametrize("name", sorted(FORMATS))
