"""Actions written as JSON objects: `{"action": "Up"}`, `{"answer": "42"}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.tags import Scanner
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
from verl_agentic.episode.protocols.load_protocol import CallForm, Protocol
from verl_agentic.episode.protocols.tag_actions import numbered, thoughts_of

_BEGINS = re.compile(r'\{\s*"')
"""The start of an object with a key; skips braces of formulas and programs."""
_MAX_TRIED = 256
"""Maximum number of failed attempts to read an object per turn; each may scan the whole text."""
Parameters = Mapping[str, Schema | None]


class JsonActions:
    """Reads and writes the actions of a protocol of JSON objects. Unknown keys are ignored."""

    def __init__(self, protocol: Protocol, *, repair: bool) -> None:
        """Makes a reader. Raises MissingDependencyError if `repair` needs a package that is not installed."""
        if repair:
            require_repair()
        self._protocol = protocol
        self._repair = repair
        self._forms = {form.key: form for form in protocol.calls}
        self._answer_key = protocol.answer.key if protocol.answer else None
        self._scanner = Scanner((), reasoning=protocol.reasoning)

    def read(self, text: str, *, turn: int, parameters: Parameters, in_reasoning: bool) -> ParsedTurn:
        """Returns the parsed turn; see `TagActions.read`."""
        scan = self._scanner.scan(text, starts_in_reasoning=in_reasoning)
        content = scan.outside((), with_reasoning=False)
        objects = self._find_objects(content)
        counts: dict[str, float] = {}
        if not objects and self._repair and (repaired := self._repair_action(content)) is not None:
            objects, counts = [repaired], {REPAIRED: 1.0}
        calls: list[ToolCall] = []
        answer: str | None = None
        for item in objects:
            is_taken = answer is not None or any(call.error is None for call in calls)
            if self._answer_key in item and not is_taken:
                answer = _to_text(item[self._answer_key])
            elif self._answer_key in item or answer is not None:
                counts["ignored_actions"] = counts.get("ignored_actions", 0.0) + 1.0
            elif sum(call.error is None for call in calls) >= self._protocol.max_calls:
                calls.append(bad_call(f"only {self._protocol.max_calls} of them in one turn", "too_many"))
            else:
                calls.append(self._read_call(item, parameters))
        if answer is not None:
            calls = []
        elif not calls:
            calls = [self._explain_missing(content, text)]
        return ParsedTurn(
            content=scan.text,
            answer=answer,
            calls=tuple(numbered(call, turn, index) for index, call in enumerate(calls)),
            counts=counts,
        )

    def write(self, message: Message) -> str:
        """Returns an assistant message as the policy would write it; see `TagActions.write`."""
        calls = [self._write_call(call) for call in message.tool_calls if call.error is None]
        thoughts = thoughts_of(message, self._protocol)
        if not calls:
            is_answer = self._answer_key is not None and not message.tool_calls
            return "\n".join(
                [*thoughts, _dump_json({self._answer_key: message.content}) if is_answer else message.content]
            )
        reasoning, content = self._protocol.reasoning, message.content
        if content and reasoning is not None and not any(tag in content for tag in reasoning):
            content = f"{reasoning[0]}{content}{reasoning[1]}"
        return "\n".join([*thoughts, *([content] if content else []), *calls])

    def prefix(self, tool: str) -> str:
        """Returns how a call of `tool` begins, up to its argument."""
        return f"{{{_dump_json(self._form_of(tool).key)}: "

    def _find_objects(self, text: str) -> list[dict[str, Any]]:
        """Returns the objects in a text with an action or an answer."""
        objects, offset, tried = [], 0, 0
        while tried < _MAX_TRIED and (match := _BEGINS.search(text, offset)) is not None:
            value, offset = _object_at(text, match.start())
            tried += not value
            if any(key in value for key in (*self._forms, self._answer_key)):
                objects.append(value)
        return objects

    def _repair_action(self, text: str) -> dict[str, Any] | None:
        start = text.find("{")
        value = repair_object(text[start:]) if start >= 0 else None
        is_action = (
            value is not None
            and problem_of(value) is None
            and any(key in value for key in (*self._forms, self._answer_key))
        )
        return value if is_action else None

    def _read_call(self, item: Mapping[str, Any], parameters: Parameters) -> ToolCall:
        form = next(form for key, form in self._forms.items() if key in item)
        if item[form.key] in ("", None, [], {}):
            return bad_call(f"the value of {form.key} is empty; give one", "empty", name=form.tool)
        call = call_with(form.tool, {form.argument: item[form.key]})
        return fit_arguments(call, parameters.get(form.tool), raw={})

    def _explain_missing(self, content: str, text: str) -> ToolCall:
        """Returns the message for a turn without an action."""
        if self._find_objects(text):
            return bad_call("the action stands inside a reasoning block; end the reasoning first", "in_reasoning")
        start = content.find("{")
        if start >= 0:
            try:
                load_json(content[start:].strip())
            except UNREADABLE as cause:
                error = f"{self._protocol.invalid_action} ({reason_of(cause)})"
                return bad_call(error, "malformed_json")
        return bad_call(self._protocol.invalid_action, "invalid_action")

    def _write_call(self, call: ToolCall) -> str:
        form = self._form_of(call.name)
        return _dump_json({form.key: call.arguments.get(form.argument)})

    def _form_of(self, tool: str) -> CallForm:
        for form in self._forms.values():
            if form.tool == tool:
                return form
        raise ConfigError(
            f"protocol {self._protocol.name!r} has no key for tool {tool!r}; it has some for "
            f"{sorted({form.tool for form in self._forms.values()})}"
        )


def _object_at(text: str, offset: int) -> tuple[dict[str, Any], int]:
    """Returns the object that starts at `offset` (empty if there is none), and the next position to search."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, offset)
        load_json(text[offset:end])
    except UNREADABLE:
        return {}, offset + 1
    return value, end


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else _dump_json(value)


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
