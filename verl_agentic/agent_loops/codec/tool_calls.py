"""Reads the calls of a turn with verl's tool parsers, and tells what is wrong with those that cannot be carried out.

verl's parsers drop what they cannot read, and take a call inside the reasoning for a real one. So the text is taken
apart first, and a parser sees one call at a time: what it then does not return was a mistake of the policy.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from verl_agentic.agent_loops.codec.json_repair import repair_object, require_repair
from verl_agentic.agent_loops.codec.parsed_turn import (
    MAX_SIZE,
    UNREADABLE,
    ParsedTurn,
    Schema,
    bad_call,
    call_with,
    fit_arguments,
    load_json,
    parameters_of,
    reason_of,
)
from verl_agentic.agent_loops.codec.tool_formats import MALFORMED, ToolFormat, opening_pattern
from verl_agentic.rewards.text.tags import Scan, Scanner, Tag, TagSpan
from verl_agentic.types import ToolCall

_T = TypeVar("_T")
logger = logging.getLogger(__name__)
IN_REASONING = "the call stands inside a reasoning block and was not carried out; end the reasoning first, then call"
_VERL_PARSERS = "verl.experimental.agent_loop.tool_parser"
_MAX_ARGUMENTS = 256
"""Maximum number of arguments of a call. For each argument, verl's parsers search all the rest of the call."""
REPAIRED = "repaired_calls"
"""The name under which `ParsedTurn.counts` has the calls that were mended."""


class CallParser(Protocol):
    """The part of verl's tool parsers that is used here."""

    tokenizer: Any

    @property
    def stop_token_ids(self) -> list[int]: ...

    async def extract_tool_calls(self, responses_ids: Any, tools: Any = None) -> tuple[str, list[Any]]: ...


class CallReader:
    """Reads the turns of one tool format."""

    def __init__(self, parser: CallParser, *, tool_format: ToolFormat, repair: bool = False) -> None:
        """Makes a reader.

        Args:
            parser: verl's parser of that format.
            tool_format: the format.
            repair: fix calls that are almost right; see `repair.repair_object`.

        Raises:
            MissingDependencyError: `repair` needs a package that is not installed.
        """
        if repair:
            require_repair()
        # The parser decodes what it is given; it is given text, one call at a time, instead of the ids of a turn.
        self._parser = copy.copy(parser)
        self._parser.tokenizer = _TextTokenizer(parser.tokenizer)
        self._format = tool_format
        self._repair = repair
        tags = [Tag(kind="block", opening=opening_pattern(tool_format), closing=tool_format.block[1])]
        if tool_format.unit is not None:
            tags.append(Tag(kind="unit", opening=re.escape(tool_format.unit[0]), closing=tool_format.unit[1]))
        self._scanner = Scanner(tags, reasoning=tool_format.reasoning)
        self._openings = tool_format.argument_openings
        # Where a call is JSON from its first character to its last, verl's own parser reads it as `json` does.
        reads_json = getattr(parser, "reads_json", type(parser).__module__ == _VERL_PARSERS)
        self._is_json = tool_format.json_after == "" and reads_json

    async def read(self, text: str, *, turn: int, tools: Sequence[Schema], starts_in_reasoning: bool) -> ParsedTurn:
        """Returns the turn taken apart.

        Args:
            text: the turn, without the token that ended it.
            turn: number of the turn; names the calls.
            tools: the schemas that arguments are checked against; empty: no check.
            starts_in_reasoning: the prompt has opened a block of reasoning.
        """
        scan = self._scanner.scan(text, starts_in_reasoning=starts_in_reasoning)
        parameters = parameters_of(tools)
        counts: Counter[str] = Counter()
        calls = [call for span in scan.spans for call in await self._read_span(span, parameters, counts)]
        return ParsedTurn(
            content=self._spoken(scan, with_reasoning=self._format.reasoning_is_text),
            answer=self._spoken(scan, with_reasoning=False) if scan.reasoning and not calls else None,
            calls=tuple(replace(c, call_id=c.call_id or f"call_{turn}_{i}") for i, c in enumerate(calls)),
            counts={key: float(count) for key, count in counts.items()},
        )

    def _spoken(self, scan: Scan, *, with_reasoning: bool) -> str:
        text = scan.outside(("block", "unit"), with_reasoning=with_reasoning)
        return re.sub(self._format.separators, "", text) if self._format.separators else text

    async def _read_span(
        self, span: TagSpan, parameters: Mapping[str, Schema | None], counts: Counter[str]
    ) -> list[ToolCall]:
        if span.in_reasoning:
            return [bad_call(IN_REASONING, "in_reasoning")]
        if span.kind == "unit" and not self._repair:
            return [self._malformed(f"it must stand between {_names(self._format.block)}", "malformed_json")]
        return [
            await self._read_unit(text, parameters, counts, is_closed=is_closed, is_stray=span.kind == "unit")
            for text, is_closed in self._units(span)
        ]

    def _units(self, span: TagSpan) -> Iterator[tuple[str, bool]]:
        """Yields the text of every call in a span, and whether it is closed."""
        if self._format.unit is None:
            yield span.body, span.is_closed
            return
        opening, closing = self._format.unit
        body = span.opening + span.body + (closing if span.is_closed else "") if span.kind == "unit" else span.body
        starts = [match.start() for match in re.finditer(re.escape(opening), body)]
        if not starts:
            yield body, span.is_closed
            return
        for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
            unit, found, _ = body[start:end].partition(closing)
            yield unit + found, bool(found) and span.is_closed

    async def _read_unit(
        self,
        text: str,
        parameters: Mapping[str, Schema | None],
        counts: Counter[str],
        *,
        is_closed: bool,
        is_stray: bool,
    ) -> ToolCall:
        if not text.strip():
            return self._malformed("it is empty", "empty")
        if len(text) > MAX_SIZE or any(text.count(opening) > _MAX_ARGUMENTS for opening in self._openings):
            return self._malformed(
                f"it has more than {MAX_SIZE} characters or {_MAX_ARGUMENTS} arguments", "malformed_json"
            )
        if not is_closed and not self._repair:
            return self._malformed("it is not closed", "unclosed")
        text = text if is_closed else self._close(text)
        call = await self._parse(text)
        is_repaired = call.error is None and (is_stray or not is_closed)
        repaired = self._repaired(text) if call.error is not None and self._repair else None
        if repaired is not None:
            second = await self._parse(repaired)
            is_repaired = second.error is None
            call, text = (second, repaired) if is_repaired else (call, text)
        if call.error is not None:
            return call if is_closed else self._malformed("it is not closed", "unclosed")
        if is_repaired:
            counts[REPAIRED] += 1
        return fit_arguments(call, parameters.get(call.name), raw=self._raw_arguments(text))

    async def _parse(self, text: str) -> ToolCall:
        """Returns the one call that `text` is."""
        call = self._json_call(text)
        if call is not None:
            return call
        form = self._format
        whole = form.before_block + form.block[0] + text + form.block[1]
        try:
            _, found = _at_once(self._parser.extract_tool_calls(whole))
        except Exception as cause:  # what a parser cannot take is a mistake of the policy
            logger.info("a tool parser failed on a call: %s", cause)
            found = []
        if len(found) != 1:
            return self._malformed("it cannot be read", "malformed_json")
        name = str(found[0].name).strip()
        match = re.fullmatch(form.tool_name, name) if form.tool_name else None
        call_id = getattr(found[0], "tool_call_id", None) or ""
        try:
            arguments = form.read_arguments(text) if form.read_arguments else load_json(found[0].arguments)
        except UNREADABLE as cause:
            return self._malformed(reason_of(cause), "malformed_json", name=name)
        return call_with(match[1] if match else name, arguments, call_id=call_id)

    def _json_call(self, text: str) -> ToolCall | None:
        """Returns the call where nothing of it but JSON must be read; one with an error when its JSON is not what it
        must be; None where verl's parser has to read the rest."""
        if self._format.json_after is None:
            return None
        before, part, _ = self._json_part(text)
        try:
            value = load_json(part)
        except UNREADABLE as cause:
            return self._malformed(reason_of(cause), "malformed_json")
        if not isinstance(value, dict):
            return call_with("", value)
        if before:
            return None
        name = value["name"] if isinstance(value.get("name"), str) else ""
        if "name" not in value or "arguments" not in value:
            return self._malformed("a key is missing", "malformed_json", name=name)
        if not isinstance(value["name"], str):
            return self._malformed("the name is no text", "malformed_json")
        if not isinstance(value["arguments"], dict):
            return call_with(name, value["arguments"])
        return call_with(name.strip(), value["arguments"]) if self._is_json else None

    def _repaired(self, text: str) -> str | None:
        """Returns what the text of a call was meant to be, or None."""
        if self._format.json_after is None:
            return self._close(text)
        before, part, after = self._json_part(text)
        value = repair_object(part)
        if value is None:
            return None
        return before + json.dumps(value if before else _call_object(value), ensure_ascii=False) + after

    def _json_part(self, text: str) -> tuple[str, str, str]:
        """Returns what stands before the JSON of a call, the JSON, and what closes the call."""
        marker, closing = self._format.json_after or "", self._format.unit[1] if self._format.unit else ""
        before, found, part = text.partition(marker) if marker else ("", "", text)
        return before + found, part.removesuffix(closing), closing

    def _close(self, text: str) -> str:
        """Returns the text with the closing tags that it lacks."""
        for opening, closing in filter(None, (self._format.value, self._format.unit)):
            if text.rfind(opening) > text.rfind(closing):
                text = text.rstrip() + closing
        return text

    def _raw_arguments(self, text: str) -> dict[str, str]:
        if self._format.raw_argument is None:
            return {}
        return {k.strip(): v.strip() for k, v in re.findall(self._format.raw_argument, text, re.DOTALL)}

    def _malformed(self, detail: str, kind: str, *, name: str = "") -> ToolCall:
        return bad_call(f"{self._format.malformed} ({detail})", kind, name=name)


class ForeignReader:
    """Reads turns with a parser whose format is not known here; what it drops is counted by its tags, if it has any."""

    def __init__(self, parser: CallParser) -> None:
        self._parser = parser

    async def read(self, token_ids: list[int], text: str, *, turn: int, tools: Sequence[Schema]) -> ParsedTurn:
        """Returns the turn taken apart; see `CallReader.read`."""
        try:
            content, found = await self._parser.extract_tool_calls(token_ids)
        except Exception as cause:
            logger.warning("a tool parser failed on a turn: %s", cause)
            return ParsedTurn(
                content=text, calls=(replace(bad_call(MALFORMED, "malformed_json"), call_id=f"call_{turn}_0"),)
            )
        parameters = parameters_of(tools)
        calls = []
        for call in found:
            try:
                read = call_with(str(call.name), load_json(call.arguments))
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


class _TextTokenizer:
    """The model's tokenizer to a parser, whose tokens are texts already."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def decode(self, text: str, **_: Any) -> str:
        return text

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_tokenizer"), name)


class _NoExecutor:
    """Stands in for the event loop: what was meant for its threads is done where it stands."""

    async def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


def _at_once(parsing: Coroutine[Any, Any, _T]) -> _T:
    """Returns what a parser of verl reads.

    Parsers decode in the default threads of the event loop, which calls that hang in an environment may hold; and
    here there is nothing to decode.
    """
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", _NoExecutor()))
    try:
        parsing.send(None)
    except StopIteration as done:
        return done.value
    finally:
        asyncio._set_running_loop(loop)
        parsing.close()
    raise RuntimeError("a parser waits for something else than its threads")


def _call_object(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call with the names of its keys, and the type of its arguments, mended."""
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = repair_object(arguments) or arguments
    return {"name": value.get("name"), "arguments": arguments}


def _names(tags: tuple[str, str]) -> str:
    # Without their brackets: in an observation the tags themselves would be broken up.
    return " and ".join(tag.strip("<>|") for tag in tags)
