"""Requests and answers of a gateway, in no dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, ToolCall, TurnLimits

Schema = Mapping[str, Any]
MODEL = "policy"
"""Name of the model in answers. Requests may give any name."""
_READABLE = (None, "wrong_arguments", "unknown_tool", "too_many")
"""Kinds of errors of calls that an agent can handle itself."""
_THOUGHTS = re.compile(r"\s*<think(?:ing)?>(.*?)</think(?:ing)?>(.*)", re.DOTALL)
_END = re.compile(r"<\|[^<>\s]+\|>\s*$")


Server = Literal["vllm", "sglang"]
# vLLM 0.24.0: entrypoints/chat_utils.py, entrypoints/anthropic/serving.py. SGLang 0.5.23:
# srt/parser/jinja_template_utils.py, srt/entrypoints/anthropic/serving.py.
_JOINS: Mapping[Server, str] = {"vllm": "\n", "sglang": " "}
_ANTHROPIC_SYSTEM_JOINS: Mapping[Server, str] = {"vllm": "", "sglang": "\n"}
_BILLING = re.compile(r"x-anthropic-billing-header:(?: *[\w.-]+=[^;\n]*;)*[^\S\n]*\n?")
"""What Claude Code puts before its prompt, with another hash in every request."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options of the requests of a session."""

    ignore: Collection[str] = ()
    """Fields that have no effect instead of being refused."""
    server: Server = "vllm"
    """Server whose form texts of several parts get."""


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
        matches = [(content.index(stop), stop) for stop in stop_texts if stop in content]
        if matches:
            end, stop_text = min(matches)
            content = content[:end]
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


def is_same(original: Message, other: Message) -> bool:
    """Returns whether a message of a request is the same to the policy as one that it has seen: role, text and calls.

    Ids of calls do not count. The request may have the thoughts of a turn apart from its text.
    """
    calls = [[(call.name, call.arguments) for call in message.tool_calls] for message in (original, other)]
    if original.role != other.role or calls[0] != calls[1]:
        return False
    return original.content == other.content or (
        bool(other.reasoning) and split_thoughts(original.content) == (other.reasoning.strip(), other.content.strip())
    )


def split_thoughts(content: str) -> tuple[str, str]:
    """Returns the thoughts that a turn begins with, and the rest, as proxies split them."""
    match = _THOUGHTS.match(content)
    return (match[1].strip(), match[2].strip()) if match else ("", content.strip())


def turn_key(message: Message) -> str:
    """Returns a text by which a turn is known again without its thoughts; empty for a turn without text and calls."""
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    text = split_thoughts(message.content)[1]
    return json.dumps([text, calls], sort_keys=True, default=str) if text or calls else ""


def num_shared(messages: Sequence[Message], other: Sequence[Message]) -> int:
    """Returns the number of messages with which both conversations begin."""
    pairs = enumerate(zip(messages, other, strict=False))
    return next((index for index, pair in pairs if not is_same(*pair)), min(len(messages), len(other)))


def read_fields(
    body: Any, *, known: Collection[str], fixed: Mapping[str, Any], unused: Collection[str], ignore: Collection[str]
) -> dict[str, Any]:
    """Returns the fields of a request that have an effect. A null counts as missing.

    Args:
        body: the parsed JSON.
        fixed: field -> its only value.
        unused: fields that are about other things than the turn.
        ignore: fields that the user has chosen to ignore.

    Raises:
        ConfigError: it is no object, or has a field or value that is not supported.
    """
    if not isinstance(body, Mapping):
        raise ConfigError(f"the body must be a JSON object, got {type(body).__name__}; send one")
    fields = {
        key: value for key, value in body.items() if value is not None and key not in unused and key not in ignore
    }
    for key, only in fixed.items():
        if (value := fields.pop(key, only)) != only:
            raise ConfigError(
                f"{key} is served as {only!r} only, because the trainer chooses how the policy samples, got {value!r}; "
                f"leave it out, or add {key!r} to agentic.env_config.ignore"
            )
    if unknown := sorted(set(fields) - set(known)):
        raise ConfigError(
            f"unsupported fields, got {unknown}; leave them out, or add them to agentic.env_config.ignore"
        )
    return fields


def text_of(content: Any, *, options: SessionOptions, kinds: Collection[str] = ("text",)) -> str:
    """Returns the text of a message's content, which may be a list of parts, as the server of `options` joins them.

    Raises:
        ConfigError: a part is not text.
    """
    return (
        content or ""
        if content is None or isinstance(content, str)
        else _JOINS[options.server].join(_texts_of(content, kinds))
    )


def result_text_of(content: Any, *, kinds: Collection[str] = ("text",)) -> str:
    """Returns the text of a tool's result in Anthropic's form; see `text_of`. Both servers join its parts alike."""
    return content or "" if content is None or isinstance(content, str) else "\n".join(_texts_of(content, kinds))


def system_text_of(
    content: Any, *, options: SessionOptions, kinds: Collection[str] = ("text",), is_anthropic: bool = False
) -> str:
    """Returns the text of a message of the system; see `text_of`. Headers of accounting are no part of the prompt."""
    if content is None or isinstance(content, str):
        return _BILLING.sub("", content or "")
    texts = [text for text in _texts_of(content, kinds) if not _BILLING.match(text)]
    return (_ANTHROPIC_SYSTEM_JOINS if is_anthropic else _JOINS)[options.server].join(texts)


def _texts_of(parts: Any, kinds: Collection[str]) -> list[str]:
    texts = []
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") not in kinds or not isinstance(part.get("text"), str):
            raise ConfigError(f"only text is supported in messages, got {str(part)[:80]}; send text")
        texts.append(part["text"])
    return texts


def thoughts_of(*values: Any) -> str:
    """Returns the thoughts that a request has apart from the text of a turn: the first text that is not empty."""
    return next((value for value in values if isinstance(value, str) and value.strip()), "")


def check_history(messages: Sequence[Message]) -> None:
    """Checks that the policy can take the next turn.

    Raises:
        ConfigError: the turn has begun already, or the result of a call is missing.
    """
    if messages[-1].role == "assistant":
        raise ConfigError(
            "the last message must not be the assistant's, because no turn of training begins with text that another "
            "one wrote; end with a message of the user or a result of a tool, or force a call by tool_choice"
        )
    open_ids: set[str] = set()
    for message in (*messages, Message("assistant", "")):
        if message.role == "assistant":
            if open_ids:
                raise ConfigError(
                    f"every call must have a result before the next turn, got none for {sorted(open_ids)}"
                )
            open_ids = {call.call_id for call in message.tool_calls if call.call_id}
        elif message.role == "tool":
            open_ids.discard(message.call_id)


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
    """Returns the schema of a tool in the form of chat templates. Raises ConfigError if it has no name."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a tool must have a name, got {name!r}")
    details = {"description": description, "parameters": parameters}
    return {"type": "function", "function": {"name": name, **{k: v for k, v in details.items() if v is not None}}}


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
