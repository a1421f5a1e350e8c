"""Forms of one conversation, for chat templates that refuse some of them.

Some templates take one call per turn, ids of nine characters, arguments as text, no system message, or nothing but
turns of user and assistant that alternate. Each function yields the conversation as it is, then in forms that more
templates take. The caller uses the first form that renders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.base.types import THOUGHT_KEYS, Message

ChatMessage = dict[str, Any]
WriteCalls = Callable[[Iterable[tuple[str, Mapping[str, Any]]]], str]
SILENT: ChatMessage = {"role": "assistant", "content": ""}
_UNNAMED = "tool"


def to_template(message: Message) -> ChatMessage:
    """Returns a message in the form that chat templates take, its thoughts under every key that they read."""
    return {**message.to_dict(), **(dict.fromkeys(THOUGHT_KEYS, message.reasoning) if message.reasoning else {})}


def reply_forms(new: Sequence[ChatMessage]) -> Iterator[tuple[list[ChatMessage], list[ChatMessage]]]:
    """Yields forms of the messages after a turn, each with two turns that they can follow.

    The turns differ in nothing but the last thing they say. Their calls have the names and ids of the results, and
    nothing else of what the policy wrote.
    """
    results = [message for message in new if message["role"] == "tool"]
    for messages, num_calls in ((list(new), len(results)), (_with_short_ids(new), 1)) if results else ():
        called = [message for message in messages if message["role"] == "tool"][:num_calls]
        turns = [_with_calls(SILENT, [_call_of(result, text) for result in called]) for text in "01"]
        yield turns, messages
        yield list(map(_with_text_arguments, turns)), messages
    spoken = [{**SILENT, "content": text} for text in "01"]
    if not results:
        yield spoken, list(new)
    yield spoken, [{"role": "user", "content": _join_contents(new)}]


def prompt_forms(messages: Sequence[ChatMessage], *, write_calls: WriteCalls) -> Iterator[list[ChatMessage]]:
    """Yields forms of a whole conversation.

    Args:
        write_calls: writes calls, given as tool and arguments, as the policy does.
    """
    yield list(messages)
    if any(message.get("tool_calls") for message in messages):
        yield list(map(_with_text_arguments, messages))
        yield list(map(_with_text_in_thoughts, messages))
        yield _with_one_call_each(messages)
    for keeps_system in (True, False):
        yield _alternate_roles(messages, write_calls=write_calls, keeps_system=keeps_system)


def _call_of(result: ChatMessage, text: str) -> ChatMessage:
    function = {"name": result.get("name") or _UNNAMED, "arguments": {"value": text}}
    return {"id": result.get("tool_call_id") or "call_0", "type": "function", "function": function}


def _with_text_arguments(message: ChatMessage) -> ChatMessage:
    """Returns a turn whose arguments are the text of a JSON object."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    texts = [{**function, "arguments": json.dumps(function["arguments"])} for function in functions]
    calls = message.get("tool_calls") or ()
    return _with_calls(message, [{**call, "function": text} for call, text in zip(calls, texts, strict=True)])


def _with_text_in_thoughts(message: ChatMessage) -> ChatMessage:
    """Returns a turn with calls whose text is the end of its thoughts: gpt-oss' template takes no text beside both."""
    if not (message.get("tool_calls") and message["content"] and THOUGHT_KEYS[0] in message):
        return message
    thoughts = f"{message[THOUGHT_KEYS[0]]}\n\n{message['content']}"
    return {**message, "content": "", **dict.fromkeys(THOUGHT_KEYS, thoughts)}


def _with_short_ids(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Gives every result an id of nine letters and digits."""
    return [
        {**message, "tool_call_id": _short_id(index)} if message["role"] == "tool" else message
        for index, message in enumerate(messages)
    ]


def _with_one_call_each(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Writes a turn of several calls as several turns, each before the result of its call."""
    new_messages: list[ChatMessage] = []
    pending = list(messages)
    while pending:
        message = pending.pop(0)
        calls = [
            {**call, "id": _short_id(len(new_messages) + n)} for n, call in enumerate(message.get("tool_calls") or ())
        ]
        new_messages.append(_with_calls(message, calls[:1]))
        for number, call in enumerate(calls):
            if number:
                new_messages.append(_with_calls(SILENT, [call]))
            if pending and pending[0]["role"] == "tool":
                new_messages.append({**pending.pop(0), "tool_call_id": call["id"]})
    return new_messages


def _alternate_roles(
    messages: Sequence[ChatMessage], *, write_calls: WriteCalls, keeps_system: bool
) -> list[ChatMessage]:
    """Returns a conversation in which the user and the policy speak in turn, without tools."""
    new_messages: list[ChatMessage] = []
    for index, message in enumerate(messages):
        is_system = message["role"] == "system" and index == 0 and keeps_system
        role = message["role"] if is_system or message["role"] == "assistant" else "user"
        content = message["content"]
        if message.get("tool_calls"):
            functions = [call["function"] for call in message["tool_calls"]]
            calls = write_calls((function["name"], function["arguments"]) for function in functions)
            content = f"{content}\n{calls}" if content else calls
        if new_messages and new_messages[-1]["role"] == role:
            content = _join_contents([new_messages.pop(), {"content": content}])
        new_messages.append({"role": role, "content": content})
    return new_messages


def _with_calls(message: ChatMessage, calls: list[ChatMessage]) -> ChatMessage:
    return {**message, "tool_calls": calls} if calls else message


def _join_contents(messages: Sequence[ChatMessage]) -> str:
    return "\n\n".join(message["content"] for message in messages)


def _short_id(number: int) -> str:
    return f"call{number:05d}"
