"""Actions written between tags: `<search>...</search>`, `<answer>...</answer>`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.base.text.tags import Scan, Scanner, Tag, TagSpan
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn, Schema, bad_call, call_with, fit_arguments
from verl_agentic.episode.protocols.load_protocol import CallForm, Protocol

INVALID = "invalid_"
"""Prefix of the ids of invalid calls, which the framework answers instead of a tool."""
_ANSWER = "answer"
_FENCE = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*?)(?:\n?```\s*)?", re.DOTALL)


class TagActions:
    """Reads and writes the actions of a protocol of tags."""

    def __init__(self, protocol: Protocol, *, self_written: bool) -> None:
        """Makes a reader; with `self_written` only the final answer is an action."""
        self._protocol = protocol
        self._calls = () if self_written else protocol.calls
        firm = [call for call in self._calls if not call.is_fallback]
        self._scanner = Scanner(self._list_tags(firm, with_answer=True), reasoning=protocol.reasoning)
        self._reasoning = Scanner((), reasoning=protocol.reasoning)
        self._fallback = Scanner(
            self._list_tags([c for c in self._calls if c.is_fallback], with_answer=False), reasoning=protocol.reasoning
        )

    def read(self, text: str, *, turn: int, parameters: Mapping[str, Schema | None], in_reasoning: bool) -> ParsedTurn:
        """Returns the parsed turn; the first valid action counts.

        Args:
            text: the turn, without the token that ended it.
            turn: number of the turn; names the calls.
            parameters: tool -> schema of its arguments.
            in_reasoning: the prompt has opened a block of reasoning.
        """
        scan = self._scanner.scan(text, starts_in_reasoning=in_reasoning)
        if not scan.spans:
            scan = self._fallback.scan(text, starts_in_reasoning=in_reasoning)
        counts: Counter[str] = Counter()
        calls: list[ToolCall] = []
        answer: str | None = None
        for span in scan.spans:
            is_taken = answer is not None or any(call.error is None for call in calls)
            is_answer = span.kind == _ANSWER
            problem = self._find_problem(span)
            if problem is not None:
                calls.append(problem)
            elif is_answer and not is_taken:
                answer = self._unbox_answer(self._drop_reasoning(span.body))
            elif is_answer or answer is not None:
                counts["ignored_actions"] += 1  # after the one that counts
            elif sum(call.error is None for call in calls) >= self._protocol.max_calls:
                calls.append(bad_call(f"only {self._protocol.max_calls} of them in one turn", "too_many"))
            else:
                calls.append(self._read_call(span, parameters))
        if answer is None and not calls:
            answer = self._bare_answer(scan)
            if answer is None:
                calls.append(bad_call(self._protocol.invalid_action, "invalid_action"))
        if answer is not None:
            counts["ignored_actions"] += len(calls)  # all of them errors, and the turn ends the episode
            calls = []
        return ParsedTurn(
            content=scan.outside([str(i) for i in range(len(self._calls))], with_reasoning=True),
            answer=answer,
            calls=tuple(numbered(call, turn, index) for index, call in enumerate(calls)),
            counts={key: float(count) for key, count in counts.items() if count},
        )

    def write(self, message: Message) -> str:
        """Writes a message in the policy's form. Raises ConfigError if the protocol has no tags for a called tool."""
        calls = [self._write_call(call) for call in message.tool_calls if call.error is None]
        thoughts = thoughts_of(message, self._protocol)
        if not calls:
            content = message.content if message.tool_calls else self._write_answer(message.content)
            return "\n".join([*thoughts, content])
        reasoning = self._protocol.reasoning
        content = message.content
        if content and not thoughts and reasoning is not None and not any(tag in content for tag in reasoning):
            content = f"{reasoning[0]}{content}{reasoning[1]}"
        return "\n".join([*thoughts, *([content] if content else []), *calls])

    def prefix(self, tool: str) -> str:
        """Returns how a call of `tool` begins, up to its argument."""
        form = self._form_of(tool)
        return form.tags[0] + ("\n```python\n" if form.has_fence else "")

    def _list_tags(self, calls: Sequence[CallForm], *, with_answer: bool) -> list[Tag]:
        kinds = {str(self._calls.index(call)): call.tags for call in calls}
        if with_answer and self._protocol.answer is not None:
            kinds[_ANSWER] = self._protocol.answer.tags
        return [Tag(kind=k, opening=re.escape(opening), closing=closing) for k, (opening, closing) in kinds.items()]

    def _find_problem(self, span: TagSpan) -> ToolCall | None:
        part = "the answer" if span.kind == _ANSWER else "the call"
        if span.in_reasoning:
            return bad_call(f"{part} stands inside a reasoning block; end the reasoning first", "in_reasoning")
        if not span.is_closed:
            return bad_call(f"{part} is not closed; close it", "unclosed")
        content = self._drop_reasoning(span.body) if span.kind == _ANSWER else span.body
        if not content.strip():
            return bad_call(f"{part} is empty; write something between its tags", "empty")
        return None

    def _read_call(self, span: TagSpan, parameters: Mapping[str, Schema | None]) -> ToolCall:
        form = self._calls[int(span.kind)]
        body = span.body.strip("\n") if form.has_fence or form.is_fallback else span.body.strip()
        fence = _FENCE.fullmatch(body) if form.has_fence else None
        call = call_with(form.tool, {form.argument: fence[1] if fence else body})
        return fit_arguments(call, parameters.get(form.tool), raw={})

    def _drop_reasoning(self, text: str) -> str:
        """Returns the text without reasoning."""
        return self._reasoning.scan(text).outside((), with_reasoning=False)

    def _unbox_answer(self, body: str) -> str:
        assert self._protocol.answer is not None
        boxed = last_boxed(body) if self._protocol.answer.box == "stripped" else None
        return body.strip() if boxed is None else boxed

    def _bare_answer(self, scan: Scan) -> str | None:
        """Returns the text outside of reasoning if it has a box and boxes count as answers."""
        form = self._protocol.answer
        content = scan.outside((), with_reasoning=False)
        is_answer = form is not None and form.box != "none" and last_boxed(content) is not None
        return self._unbox_answer(content) if is_answer else None

    def _write_call(self, call: ToolCall) -> str:
        form = self._form_of(call.name)
        body = str(call.arguments.get(form.argument, ""))
        body = f"\n```python\n{body}\n```\n" if form.has_fence else body
        return f"{form.tags[0]}{body}{form.tags[1]}"

    def _write_answer(self, content: str) -> str:
        form = self._protocol.answer
        if form is None:
            return content
        if form.box != "none" and last_boxed(content) is None:
            content = rf"\boxed{{{content}}}"
        return f"{form.tags[0]}{content}{form.tags[1]}"

    def _form_of(self, tool: str) -> CallForm:
        for form in self._protocol.calls:
            if form.tool == tool:
                return form
        raise ConfigError(
            f"protocol {self._protocol.name!r} has no tags for tool {tool!r}; it has some for "
            f"{sorted({form.tool for form in self._protocol.calls})}"
        )


def thoughts_of(message: Message, protocol: Protocol) -> list[str]:
    """Returns the block of reasoning of a message, or nothing if there is none."""
    if not message.reasoning or protocol.reasoning is None:
        return []
    opening, closing = protocol.reasoning
    return [f"{opening}{message.reasoning}{closing}"]


def numbered(call: ToolCall, turn: int, index: int) -> ToolCall:
    """Returns the call with an id, which also shows whether it is valid."""
    return replace(call, call_id=f"{INVALID if call.error is not None else 'call_'}{turn}_{index}")
