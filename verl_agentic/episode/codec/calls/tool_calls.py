"""Reads the calls of a turn, and says what is wrong with those that cannot be carried out.

verl's parsers drop what they cannot read, take white space from arguments, and take a call inside the reasoning for a
real one. So calls are read here, by the grammar of their format; verl's parsers read only formats that are not known
here.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.tags import Scan, Scanner, Tag, TagSpan
from verl_agentic.base.types import ToolCall, load_arguments
from verl_agentic.episode.codec.calls.argument_notations import CallError
from verl_agentic.episode.codec.calls.call_grammar import WrittenCall, read_block, read_call
from verl_agentic.episode.codec.calls.json_values import (
    MAX_SIZE,
    UNREADABLE,
    load_json,
    reason_of,
    repair_object,
    require_repair,
)
from verl_agentic.episode.codec.calls.parsed_turn import (
    ParsedTurn,
    Schema,
    bad_call,
    call_with,
    fit_arguments,
    parameters_of,
)
from verl_agentic.episode.codec.calls.tool_formats import MALFORMED, ToolFormat, opening_pattern

logger = logging.getLogger(__name__)
IN_REASONING = "the call stands inside a reasoning block and was not carried out; end the reasoning first, then call"
_VERL_PARSERS = "verl.experimental.agent_loop.tool_parser"
REPAIRED = "repaired_calls"
"""The name under which `ParsedTurn.counts` has the repaired calls."""


class CallParser(Protocol):
    """The part of verl's tool parsers that is used here."""

    tokenizer: Any

    @property
    def stop_token_ids(self) -> list[int]: ...

    async def extract_tool_calls(self, responses_ids: Any, tools: Any = None) -> tuple[str, list[Any]]: ...


class CallReader:
    """Reads the turns of one tool format."""

    def __init__(
        self, parser: CallParser, *, tool_format: ToolFormat, repair: bool = False, check_arguments: bool = True
    ) -> None:
        """Makes a reader.

        Args:
            parser: verl's parser of that format, which this reader stands in for.
            repair: fix calls that are almost right; see `json_values.repair_object`.
            check_arguments: calls whose arguments do not fit the schema of their tool carry an error.

        Raises:
            ConfigError: the parser was derived from verl's, and would not be asked.
            MissingDependencyError: `repair` needs a package that is not installed.
        """
        modules = [base.__module__ for base in type(parser).__mro__]
        if _VERL_PARSERS in modules[1:] and modules[0] != _VERL_PARSERS:
            raise ConfigError(
                f"calls of the format {tool_format.name!r} are not read with a parser of your own, got "
                f"{type(parser).__name__}; register it under another name and set that as the format"
            )
        if repair:
            require_repair()
        self._format = tool_format
        self._repair = repair
        self._check_arguments = check_arguments
        tags = [
            Tag(
                kind="block",
                opening=opening_pattern(tool_format),
                closing=tool_format.block[1],
                parse=self._parse_block,
            )
        ]
        if tool_format.unit is not None:
            tags.append(Tag(kind="unit", opening=re.escape(tool_format.unit[0]), closing=tool_format.unit[1]))
        if tool_format.stray_pattern is not None:
            tags.append(Tag(kind="stray", opening=tool_format.stray_pattern, closing=tool_format.block[1]))
        tags.append(Tag(kind="stray", opening=re.escape(tool_format.block[1]), closing=""))
        # The tags of some formats are words that an answer may speak of; control tokens are no words.
        later = "none" if tool_format.reasoning_is_text else "any"
        self._scanner = Scanner(tags, reasoning=tool_format.reasoning, later_reasoning=later)

    async def read(self, text: str, *, turn: int, tools: Sequence[Schema], starts_in_reasoning: bool) -> ParsedTurn:
        """Returns the turn taken apart.

        Args:
            text: the turn, without the token that ended it.
            turn: number of the turn; names the calls.
            tools: the schemas that give arguments their types, and that they are checked against.
            starts_in_reasoning: the prompt has opened a block of reasoning.
        """
        scan = self._scanner.scan(text, starts_in_reasoning=starts_in_reasoning)
        parameters = parameters_of(tools)
        counts: Counter[str] = Counter()
        calls = [call for span in scan.spans for call in self._read_span(span, parameters, counts)]
        return ParsedTurn(
            content=self._extract_content(scan, with_reasoning=self._format.reasoning_is_text),
            answer=self._extract_content(scan, with_reasoning=False) if scan.reasoning and not calls else None,
            calls=tuple(replace(c, call_id=c.call_id or f"call_{turn}_{i}") for i, c in enumerate(calls)),
            counts={key: float(count) for key, count in counts.items()},
        )

    def _extract_content(self, scan: Scan, *, with_reasoning: bool) -> str:
        text = scan.outside(("block", "unit"), with_reasoning=with_reasoning)
        return re.sub(self._format.separators, "", text) if self._format.separators else text

    def _parse_block(self, text: str, offset: int) -> tuple[list[WrittenCall], int] | None:
        try:
            calls, end = read_block(self._format, text, offset)
        except CallError:
            return None
        return (calls, end) if all(isinstance(call.arguments, dict) for call in calls) else None

    def _read_span(
        self, span: TagSpan, parameters: Mapping[str, Schema | None], counts: Counter[str]
    ) -> list[ToolCall]:
        if span.in_reasoning:
            return [bad_call(IN_REASONING, "in_reasoning")]
        if span.parsed is not None:
            return [self._fit_call(call, parameters) for call in span.parsed]
        if span.kind == "stray":
            return [self._make_bad_call("its beginning is missing", "malformed_json")]
        if span.kind == "unit" and not self._repair:
            return [self._make_bad_call(f"it must stand between {_name_tags(self._format.block)}", "malformed_json")]
        return [
            self._read_unit(text, parameters, counts, is_closed=is_closed, is_stray=span.kind == "unit")
            for text, is_closed in self._split_units(span)
        ]

    def _split_units(self, span: TagSpan) -> Iterator[tuple[str, bool]]:
        """Yields the text of every call in a span, and whether it is closed."""
        if self._format.unit is None:
            yield span.body + (self._format.block[1] if span.is_closed else ""), span.is_closed
            return
        opening, closing = self._format.unit
        body = span.opening + span.body + (closing if span.is_closed else "") if span.kind == "unit" else span.body
        starts = [match.start() for match in re.finditer(re.escape(opening), body)][1:]
        for start, end in zip([0, *starts], [*starts, len(body)], strict=True):
            unit = body[start:end]
            yield unit, span.is_closed and (closing in unit or opening not in unit)

    def _read_unit(
        self,
        text: str,
        parameters: Mapping[str, Schema | None],
        counts: Counter[str],
        *,
        is_closed: bool,
        is_stray: bool,
    ) -> ToolCall:
        """Returns the call of a text that is not a part of a whole block, or why it is not a call."""
        if not text.removesuffix(self._format.end).strip():
            return self._make_bad_call("it is empty", "empty")
        if len(text) > MAX_SIZE:
            return self._make_bad_call(f"it has more than {MAX_SIZE} characters", "malformed_json")
        if not is_closed and not self._repair:
            return self._make_bad_call("it is not closed", "unclosed")
        call = self._parse_call(text if is_closed else self._close_tags(text), parameters)
        is_repaired = is_stray or not is_closed
        if call.error_kind not in (None, "wrong_arguments") and self._repair:
            call, is_repaired = self._parse_call(self._repair_text(text), parameters), True
        if call.error_kind not in (None, "wrong_arguments"):
            return call if is_closed else self._make_bad_call("it is not closed", "unclosed")
        if is_repaired:
            counts[REPAIRED] += 1
        return call

    def _parse_call(self, text: str, parameters: Mapping[str, Schema | None]) -> ToolCall:
        """Returns the one call that `text` is."""
        try:
            call, end = read_call(self._format, text)
        except CallError as cause:
            return self._make_bad_call(str(cause), "malformed_json", name=cause.name)
        if text[end:].strip():
            return self._make_bad_call(f"text after the call, character {end}", "malformed_json", name=call.name)
        return self._fit_call(call, parameters)

    def _fit_call(self, written_call: WrittenCall, parameters: Mapping[str, Schema | None]) -> ToolCall:
        """Returns the call with values of the types of its schema; see `fit_arguments`."""
        call = call_with(written_call.name, written_call.arguments, call_id=written_call.call_id)
        schema = parameters.get(call.name)
        if schema is None:
            schema = {} if written_call.untyped else None
        return fit_arguments(call, schema, raw=written_call.untyped, check=self._check_arguments)

    def _repair_text(self, text: str) -> str:
        """Returns what the text of a call was probably meant to be."""
        if not self._format.is_json:
            return self._close_tags(text)
        header = self._format.header.match(text) if self._format.header else None
        begin = header.end() if header else 0
        value = repair_object(text[begin:].removesuffix(self._format.end))
        if value is None:
            return text
        arguments = value if header else _call_object(value)
        return text[:begin] + json.dumps(arguments, ensure_ascii=False) + self._format.end

    def _close_tags(self, text: str) -> str:
        """Returns the text with the closing tags that it lacks."""
        if self._format.value is not None and text.rfind(self._format.value[0]) > text.rfind(self._format.value[1]):
            text = text.rstrip() + self._format.value[1]
        return text if text.rstrip().endswith(self._format.end) else text + self._format.end

    def _make_bad_call(self, detail: str, kind: str, *, name: str = "") -> ToolCall:
        return bad_call(f"{self._format.malformed} ({detail})", kind, name=name)


class ForeignReader:
    """Reads turns with a parser whose format is not known here; what it drops is counted by its tags, if it has any."""

    def __init__(self, parser: CallParser) -> None:
        self._parser = parser

    async def read(self, token_ids: list[int], text: str, *, turn: int, tools: Sequence[Schema]) -> ParsedTurn:
        """Returns the turn taken apart; see `CallReader.read`."""
        try:
            content, function_calls = await self._parser.extract_tool_calls(token_ids)
        except Exception as cause:
            logger.warning("a tool parser failed on a turn: %s", cause)
            return ParsedTurn(
                content=text, calls=(replace(bad_call(MALFORMED, "malformed_json"), call_id=f"call_{turn}_0"),)
            )
        parameters = parameters_of(tools)
        calls = []
        for call in function_calls:
            try:
                read = call_with(str(call.name), load_arguments(call.arguments, load=load_json))
            except UNREADABLE as cause:
                read = bad_call(
                    f"the arguments are no JSON ({reason_of(cause)})", "malformed_json", name=str(call.name)
                )
            calls.append(fit_arguments(read, parameters.get(read.name), raw={}))
        calls += [bad_call(MALFORMED, "malformed_json")] * max(0, self._count_attempts(text) - len(calls))
        return ParsedTurn(
            content=content, calls=tuple(replace(c, call_id=f"call_{turn}_{i}") for i, c in enumerate(calls))
        )

    def _count_attempts(self, text: str) -> int:
        opening = getattr(self._parser, "tool_call_start_token", None)
        closing = getattr(self._parser, "tool_call_end_token", None)
        if not opening or not closing:
            return 0
        tag = Tag(kind="block", opening=re.escape(opening), closing=closing)
        return len(Scanner([tag], reasoning=None).scan(text).spans)


def _call_object(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call with the names of its keys, and the type of its arguments, repaired."""
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = repair_object(arguments) or arguments
    return {"name": value.get("name"), "arguments": arguments}


def _name_tags(tags: tuple[str, str]) -> str:
    # Without their brackets: in an observation the tags themselves would be broken up.
    return " and ".join(tag.strip("<>|") for tag in tags)
