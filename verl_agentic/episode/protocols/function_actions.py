"""Actions written as functions: `<function=name><parameter=key>value</parameter></function>`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.tags import Scanner, Tag, TagSpan
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn, Schema, bad_call, call_with, fit_arguments
from verl_agentic.episode.protocols.load_protocol import Protocol
from verl_agentic.episode.protocols.tag_actions import numbered, thoughts_of

_FUNCTION = Tag(kind="function", opening=r"<function\s*=[^<>\n]{1,256}>", closing="</function>")
_PARAMETER = Tag(kind="parameter", opening=r"<parameter\s*=[^<>\n]{1,256}>", closing="</parameter>")
TAGS = ("<function=", "</function>", "<parameter=", "</parameter>")
"""Texts with a meaning in these protocols."""
_MAX_ARGUMENTS = 256


class FunctionActions:
    """Reads and writes calls of any tools; values are texts, and get the types of the tool's schema."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._scanner = Scanner([_FUNCTION], reasoning=protocol.reasoning)
        self._parameters = Scanner([_PARAMETER], reasoning=None)

    def read(self, text: str, *, turn: int, parameters: Mapping[str, Schema | None], in_reasoning: bool) -> ParsedTurn:
        """Returns the parsed turn; see `TagActions.read`."""
        scan = self._scanner.scan(text, starts_in_reasoning=in_reasoning)
        calls: list[ToolCall] = []
        num_left = self._protocol.max_calls
        for span in scan.spans:
            if span.in_reasoning:
                calls.append(bad_call("the call is inside a reasoning block; end the reasoning first", "in_reasoning"))
            elif not span.is_closed:
                calls.append(bad_call("the call is not closed; close it", "unclosed"))
            elif num_left <= 0:
                calls.append(bad_call(f"only {self._protocol.max_calls} of them in one turn", "too_many"))
            else:
                calls.append(self._read_call(span, parameters))
                num_left -= calls[-1].error is None
        if not calls:
            calls.append(bad_call(self._protocol.invalid_action, "invalid_action"))
        return ParsedTurn(
            content=scan.outside([_FUNCTION.kind], with_reasoning=True),
            calls=tuple(numbered(call, turn, index) for index, call in enumerate(calls)),
        )

    def write(self, message: Message) -> str:
        """Writes a message in the policy's form. Raises ConfigError if a value holds the text that would end it."""
        calls = [_write_call(call) for call in message.tool_calls if call.error is None]
        thoughts = thoughts_of(message, self._protocol)
        return "\n\n".join([*thoughts, *([message.content] if message.content else []), *calls])

    def prefix(self, tool: str) -> str:
        """Returns how a call of `tool` begins, up to its arguments."""
        return f"<function={tool}>\n"

    def _read_call(self, span: TagSpan, parameters: Mapping[str, Schema | None]) -> ToolCall:
        name = _name_in(span.opening)
        scan = self._parameters.scan(span.body)
        arguments = {_name_in(parameter.opening): _unwrap_lines(parameter.body) for parameter in scan.spans}
        if not all(parameter.is_closed for parameter in scan.spans):
            return bad_call("a parameter is not closed; close it", "unclosed", name=name)
        if scan.outside([_PARAMETER.kind], with_reasoning=True).strip() or len(arguments) < len(scan.spans):
            return bad_call("a call holds nothing but its parameters, each of them once", "malformed_json", name=name)
        if len(arguments) > _MAX_ARGUMENTS:
            return bad_call(f"the call has more than {_MAX_ARGUMENTS} arguments", "malformed_json", name=name)
        return fit_arguments(call_with(name, arguments), parameters.get(name), raw=arguments)


def list_functions(tools: Sequence[Schema]) -> str:
    """Returns descriptions of tools and their parameters, for the prompt."""
    return "\n\n".join(_describe_function(tool["function"]) for tool in tools)


def _describe_function(function: Mapping[str, Any]) -> str:
    schema = function.get("parameters") or {}
    required = schema.get("required", ())
    lines = [f"Function {function['name']}: {function.get('description', '')}"]
    for name, property_schema in schema.get("properties", {}).items():
        kind = f"{property_schema.get('type', 'any type')}, {'required' if name in required else 'optional'}"
        choices = f" One of {', '.join(map(str, property_schema['enum']))}." if "enum" in property_schema else ""
        lines.append(f"- {name} ({kind}): {property_schema.get('description', '')}{choices}")
    return "\n".join(lines)


def _write_call(call: ToolCall) -> str:
    lines = [f"<function={call.name}>"]
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if _PARAMETER.closing in text or _FUNCTION.closing in text:
            raise ConfigError(f"the argument {name!r} holds text that ends a call, got {text[:80]!r}; write it without")
        lines.append(f"<parameter={name}>{_wrap_lines(text)}</parameter>")
    return "\n".join([*lines, _FUNCTION.closing])


def _wrap_lines(text: str) -> str:
    """Puts a text of several lines between line breaks of its own."""
    return f"\n{text}\n" if "\n" in text else text


def _unwrap_lines(body: str) -> str:
    is_wrapped = body.startswith("\n") and body.endswith("\n") and len(body) > 1
    return body[1:-1] if is_wrapped else body


def _name_in(opening: str) -> str:
    return opening.partition("=")[2][:-1].strip()
