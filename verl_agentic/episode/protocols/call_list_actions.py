"""Actions written as lists of calls: one JSON object per line, between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.text.tags import Scanner, Tag, TagSpan
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.codec.calls.json_values import (
    UNREADABLE,
    load_json,
    problem_of,
    reason_of,
    repair_object,
    require_repair,
)
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn, Schema, bad_call, call_with, fit_arguments
from verl_agentic.episode.codec.calls.tool_calls import REPAIRED
from verl_agentic.episode.protocols.load_protocol import Protocol
from verl_agentic.episode.protocols.tag_actions import numbered, thoughts_of

_CALLS, _ANSWER = "calls", "answer"
_ARGUMENTS = ("parameters", "arguments")
_MAX_LINES = 256
Parameters = Mapping[str, Schema | None]


class CallListActions:
    """Reads and writes calls of any tools, `{"name": ..., "parameters": {...}}`, and an answer between tags."""

    def __init__(self, protocol: Protocol, *, repair: bool) -> None:
        """Makes a reader. Raises MissingDependencyError if `repair` needs a package that is not installed."""
        if repair:
            require_repair()
        assert protocol.call_tags is not None and protocol.answer is not None
        self._protocol = protocol
        self._repair = repair
        self._call_tags, self._answer_tags = protocol.call_tags, protocol.answer.tags
        tags = [Tag(kind=_CALLS, opening=re.escape(self._call_tags[0]), closing=self._call_tags[1])]
        tags.append(Tag(kind=_ANSWER, opening=re.escape(self._answer_tags[0]), closing=self._answer_tags[1]))
        self._scanner = Scanner(tags, reasoning=protocol.reasoning)

    def read(self, text: str, *, turn: int, parameters: Parameters, in_reasoning: bool) -> ParsedTurn:
        """Returns the parsed turn; see `TagActions.read`. In a turn with calls, the answer is text beside them."""
        scan = self._scanner.scan(text, starts_in_reasoning=in_reasoning)
        calls: list[ToolCall] = []
        counts = {REPAIRED: 0.0}
        answers = [span for span in scan.spans if span.kind == _ANSWER]
        for span in scan.spans:
            if span.kind == _CALLS:
                calls += self._read_calls(span, parameters, counts)
        num_left = self._protocol.max_calls
        for index, call in enumerate(calls):
            if num_left <= 0:
                calls[index] = bad_call(f"only {self._protocol.max_calls} calls in one turn", "too_many")
            num_left -= call.error is None
        answer = self._read_answer(answers[0]) if answers and not calls else None
        if answer is None and not calls:
            calls = [bad_call(self._protocol.invalid_action, "invalid_action")]
        return ParsedTurn(
            content=scan.outside([_CALLS], with_reasoning=True),
            answer=answer,
            calls=tuple(numbered(call, turn, index) for index, call in enumerate(calls)),
            counts={key: count for key, count in counts.items() if count},
        )

    def write(self, message: Message) -> str:
        """Writes a message in the policy's form; text beside calls becomes a response."""
        lines = [_write_call(call) for call in message.tool_calls if call.error is None]
        parts = thoughts_of(message, self._protocol)
        if lines:
            parts.append("\n".join([self._call_tags[0], *lines, self._call_tags[1]]))
        if message.content or not message.tool_calls:
            parts.append(f"{self._answer_tags[0]} {message.content} {self._answer_tags[1]}")
        return "\n".join(parts)

    def prefix(self, tool: str) -> str:
        """Returns how a call of `tool` begins, up to its arguments."""
        return f'{self._call_tags[0]}\n{{"name": {_dump_json(tool)}, "parameters": '

    def _read_calls(self, span: TagSpan, parameters: Parameters, counts: dict[str, float]) -> list[ToolCall]:
        if span.in_reasoning:
            return [bad_call("the calls are inside a reasoning block; end the reasoning first", "in_reasoning")]
        if not span.is_closed:
            return [bad_call("the calls are not closed; close them", "unclosed")]
        lines = [line for line in span.body.split("\n") if line.strip()]
        if not lines:
            return [bad_call("there is no call between the tags; write one in each line", "empty")]
        read = [self._read_call(line, parameters, counts) for line in lines[:_MAX_LINES]]
        return read if len(lines) <= _MAX_LINES else [*read, bad_call(f"more than {_MAX_LINES} lines", "too_many")]

    def _read_call(self, line: str, parameters: Parameters, counts: dict[str, float]) -> ToolCall:
        try:
            value = load_json(line)
        except UNREADABLE as cause:
            value = repair_object(line) if self._repair else None
            if value is None or problem_of(value) is not None:
                return bad_call(f"a line is no JSON object ({reason_of(cause)})", "malformed_json")
            counts[REPAIRED] += 1.0
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            return bad_call("a call is a JSON object with name and parameters", "not_an_object")
        key = next((key for key in _ARGUMENTS if key in value), None)
        call = call_with(value["name"], {} if key is None else value[key])
        return fit_arguments(call, parameters.get(call.name), raw={})

    def _read_answer(self, span: TagSpan) -> str | None:
        return span.body.strip() or None if span.is_closed and not span.in_reasoning else None


def _write_call(call: ToolCall) -> str:
    return _dump_json({"name": call.name, "parameters": dict(call.arguments)})


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
