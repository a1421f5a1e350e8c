"""Requests and answers of a gateway, in no dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from verl_agentic.errors import ConfigError
from verl_agentic.types import Action, Message, ToolCall, TurnLimits

Schema = Mapping[str, Any]
MODEL = "policy"
"""Name of the model in answers. Requests may give any name."""
_READABLE = (None, "wrong_arguments", "unknown_tool", "too_many")
"""Kinds of errors of calls that an agent can handle itself."""
_END = re.compile(r"<\|[^<>\s]+\|>\s*$")


@dataclass(frozen=True, kw_only=True)
class ChatAsked:
    """A request for a turn of the policy."""

    messages: tuple[Message, ...]
    tools: tuple[Schema, ...] = ()
    limits: TurnLimits = field(default_factory=TurnLimits)
    is_stored: bool = False
    """Whether later requests may name the answer instead of the conversation."""


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """A turn of the policy, as an agent reads it."""

    id: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    stop_text: str | None = None
    """The stop text of the request that ended the turn."""
    num_context_tokens: int = 0
    num_tokens: int = 0

    @classmethod
    def of(cls, action: Action, *, id: str, stop_texts: Sequence[str] = ()) -> ChatAnswer:
        """Returns the answer that carries an action. A call that cannot be read stays in the text."""
        content, calls, stop_text = action.content, action.tool_calls, None
        if any(not call.name or call.error_kind not in _READABLE for call in calls):
            content, calls = _END.sub("", action.text), ()
        found = [(content.index(stop), stop) for stop in stop_texts if stop in content]
        if found:
            at, stop_text = min(found)
            content = content[:at]
        return cls(
            id=id,
            content=content,
            calls=tuple(ToolCall(call.name, call.arguments, f"{id}_{index}") for index, call in enumerate(calls)),
            finish="length" if action.is_cut else "tool_calls" if calls else "stop",
            stop_text=stop_text,
            num_context_tokens=action.num_context_tokens,
            num_tokens=action.num_tokens,
        )

    @property
    def message(self) -> Message:
        """The answer as a message of the conversation."""
        return Message("assistant", self.content, tool_calls=self.calls)


def is_same(one: Message, other: Message) -> bool:
    """Returns whether two messages are the same to the policy: role, text and calls. Ids of calls do not count."""
    calls = [[(call.name, call.arguments) for call in message.tool_calls] for message in (one, other)]
    return one.role == other.role and one.content == other.content and calls[0] == calls[1]


def num_shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Returns the number of messages with which both conversations begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, pair in pairs if not is_same(*pair)), min(len(one), len(other)))


def read_fields(
    body: Any,
    *,
    known: Collection[str],
    fixed: Mapping[str, Any],
    unused: Collection[str],
    ignore: Collection[str],
) -> dict[str, Any]:
    """Returns the fields of a request that have an effect. A null counts as missing.

    Args:
        body: the parsed JSON.
        known: fields with an effect.
        fixed: field -> its only value.
        unused: fields that are about other things than the turn.
        ignore: fields that the user has chosen to ignore.

    Raises:
        ConfigError: it is no object, or has a field or value that is not supported.
    """
    if not isinstance(body, Mapping):
        raise ConfigError(f"the body must be a JSON object, got {type(body).__name__}; send one")
    given = {key: value for key, value in body.items() if value is not None and key not in unused and key not in ignore}
    for key, only in fixed.items():
        if (value := given.pop(key, only)) != only:
            raise ConfigError(
                f"{key} is served as {only!r} only, because the trainer chooses how the policy samples, got {value!r}; "
                f"leave it out, or add {key!r} to agentic.env_config.ignore"
            )
    if unknown := sorted(set(given) - set(known)):
        raise ConfigError(
            f"unsupported fields, got {unknown}; leave them out, or add them to agentic.env_config.ignore"
        )
    return given


def text_of(content: Any, *, kinds: Collection[str] = ("text",)) -> str:
    """Returns the text of a message's content, which may be a list of parts.

    Raises:
        ConfigError: a part is not text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") not in kinds or not isinstance(part.get("text"), str):
            raise ConfigError(f"only text is supported in messages, got {str(part)[:80]}; send text")
        texts.append(part["text"])
    return "".join(texts)


def limits_of(*, max_tokens: Any, stop: Any, tool: str, tools: Sequence[Schema]) -> TurnLimits:
    """Returns the limits of the turn.

    Raises:
        ConfigError: a value is malformed, or the forced tool is not among the tools.
    """
    stops = [stop] if isinstance(stop, str) else stop or []
    if not all(isinstance(text, str) and text for text in stops):
        raise ConfigError(f"stop must be texts that are not empty, got {stop!r}")
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ConfigError(f"the maximum number of tokens must be a number of at least 1, got {max_tokens!r}")
    if tool and tool not in [schema["function"]["name"] for schema in tools]:
        raise ConfigError(f"tool_choice must be one of the tools, got {tool!r}")
    return TurnLimits(max_tokens=max_tokens, stop_texts=tuple(stops), tool=tool)


def function_schema(name: Any, description: Any, parameters: Any) -> Schema:
    """Returns the schema of a tool in the form of chat templates.

    Raises:
        ConfigError: it has no name.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a tool must have a name, got {name!r}")
    given = {"description": description, "parameters": parameters}
    return {"type": "function", "function": {"name": name, **{k: v for k, v in given.items() if v is not None}}}


def with_names(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Returns the messages, in which tool results have the name of the tool that was called."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names.update({call.call_id: call.name for call in message.tool_calls})
        if message.role == "tool" and not message.name:
            message = replace(message, name=names.get(message.call_id, ""))
        named.append(message)
    return tuple(named)


def arguments_of(call: ToolCall) -> str:
    """Returns the arguments of a call as JSON text."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def events(parts: Iterable[tuple[str, Mapping[str, Any]]], *, named: bool) -> str:
    """Returns server-sent events: (name, data) each; `named` writes the names, too."""
    lines = []
    for name, data in parts:
        lines.append((f"event: {name}\n" if named else "") + f"data: {json.dumps(data, ensure_ascii=False)}\n\n")
    return "".join(lines)
