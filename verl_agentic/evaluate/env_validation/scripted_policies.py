"""Policies without a model that must not be paid: constant answers, copies of tool outputs, loops, harmless calls."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.codec.codec import Codec, Schema
from verl_agentic.evaluate.env_validation.adversaries import Adversary, NextText, example_call

MAX_TURNS = 12
"""Turns of an episode."""
_CALL_TURNS, _CALLS_EACH, _MAX_CANDIDATES = 6, 8, 64
_LOOP_TURNS = 6
_MAX_CHARS = 50_000
_CONSTANTS = ("sorry", "0", "1", "yes", "no", "A", "I do not know", "It is done. All tests pass.")
_QUESTION = "Please tell me your name, your email, your zip code and your user id."
_END = re.compile(r"submit|finish|answer|transfer|done|stop|give_?up|respond|reply", re.I)
_READ = re.compile(
    r"^(get|find|search|list|read|look|open|view|show|query|fetch|grep|glob|retrieve|browse|visit|go)", re.I
)
_CODE = re.compile(r"code|script|program|source|python", re.I)
_COMMAND = re.compile(r"command|cmd|shell|bash", re.I)
_WORDS = re.compile(r"query|question|keywords?|text|q$", re.I)
_TOKEN = re.compile(r"[\w.+-]+@[\w.-]+\.\w+|#?[\w.-]*\d[\w.-]*|\b[A-Z][a-z]+(?: [A-Z][a-z]+)*|\"([^\"]{1,60})\"")


def scripted_policies(codec: Codec, tools: Sequence[Schema]) -> list[Adversary]:
    """Returns the policies for an environment with these tools. They know nothing about its tasks."""
    ends = [schema for schema in tools if not _END.search(schema["function"]["name"])]
    reads = [schema for schema in ends if _READ.search(schema["function"]["name"])] or ends
    policies = [Adversary(name=f"always {text!r}", begin=_always_say(_format_answer(text))) for text in _CONSTANTS]
    return [
        *policies,
        Adversary(name="dump of all tool outputs", begin=lambda: _Dump(codec, reads, asks=False)),
        Adversary(name="question, then dump of all tool outputs", begin=lambda: _Dump(codec, reads, asks=True)),
        Adversary(name="loop with a counter", begin=lambda: _Calls(codec, ends[:1], counts=True)),
        Adversary(name="harmless calls", begin=lambda: _Calls(codec, ends[:4], counts=False)),
    ]


def _format_answer(text: str) -> str:
    """Returns an answer in all common forms at once."""
    return text if " " in text or text == "sorry" else f"The answer is \\boxed{{{text}}}.\n<answer>{text}</answer>"


def _always_say(text: str) -> Callable[[], NextText]:
    return lambda: lambda messages: text


class _Calls:
    """Calls tools without a purpose, and then guesses."""

    def __init__(self, codec: Codec, tools: Sequence[Schema], *, counts: bool) -> None:
        self._codec, self._tools, self._counts = codec, tools, counts
        self._number = itertools.count(1)

    def __call__(self, messages: Sequence[Message]) -> str:
        number = next(self._number)
        if number > _LOOP_TURNS:
            return _format_answer("0")
        if not self._tools:
            return str(number) if self._counts else "I think about it."
        calls = []
        for schema in self._tools:
            call = example_call(schema)
            values = {
                name: _make_harmless(name, value, number * self._counts) for name, value in call.arguments.items()
            }
            calls.append(ToolCall(call.name, values))
        return self._codec.render_action(Message("assistant", "", tool_calls=tuple(calls)))


class _Dump:
    """Reads what the tools give for words that it has seen, and passes all of it on."""

    def __init__(self, codec: Codec, tools: Sequence[Schema], *, asks: bool) -> None:
        self._codec, self._tools = codec, tools
        self._begin: list[str] = [_QUESTION] if asks else []
        self._turns_left, self._tried, self._has_told = _CALL_TURNS, set[str](), False

    def __call__(self, messages: Sequence[Message]) -> str:
        if self._begin:
            return self._begin.pop()
        calls = list(itertools.islice(self._iter_next_calls(messages), _CALLS_EACH)) if self._turns_left else []
        self._turns_left -= bool(calls)
        if calls:
            return self._codec.render_action(Message("assistant", "", tool_calls=tuple(calls)))
        if self._has_told:
            return "Is there anything else?"
        self._has_told = True
        read = "\n".join(message.content for message in messages if message.role == "tool")[:_MAX_CHARS]
        return f"{read}\n<answer>{read}</answer>"

    def _iter_next_calls(self, messages: Sequence[Message]) -> Iterator[ToolCall]:
        """Yields calls that were not made yet, the tools in turn."""
        contents = [message.content for message in messages if message.role in ("user", "tool")]
        task_text = next((message.content for message in messages if message.role == "user"), "")
        candidates = list(dict.fromkeys(match[1] or match[0] for text in reversed(contents) for match in
                                        _TOKEN.finditer(text[:_MAX_CHARS])))[:_MAX_CANDIDATES]  # fmt: skip
        candidates.sort(key=lambda word: not re.search(r"\d", word) or word.isdigit())
        for number, schema in itertools.product(range(max(1, len(candidates))), self._tools):
            function = schema["function"]
            parameters = (function.get("parameters") or {}).get("properties") or {}
            arguments = {
                name: _read_value(name, kind, candidates, task_text, number) for name, kind in parameters.items()
            }
            key = f"{function['name']} {arguments}"
            if key not in self._tried:
                self._tried.add(key)
                yield ToolCall(function["name"], arguments)


def _make_harmless(name: str, value: Any, number: int) -> Any:
    if not isinstance(value, str):
        return number if isinstance(value, int) and not isinstance(value, bool) and number else value
    if _CODE.search(name):
        return f"print({number})"
    if _COMMAND.search(name):
        return f"echo {number}"
    return str(number) if number and value == "x" else value


def _read_value(name: str, kind: Mapping[str, Any], candidates: Sequence[str], task_text: str, number: int) -> Any:
    """Returns an argument of a call that reads something: a word that was seen, or the task's text."""
    example = example_call({"function": {"name": "", "parameters": {"properties": {name: kind}}}}).arguments[name]
    if kind.get("enum"):
        return kind["enum"][number % len(kind["enum"])]
    if not isinstance(example, str):
        return [candidates[number]] if isinstance(example, list) and candidates else example
    if _CODE.search(name) or _COMMAND.search(name):
        return _make_harmless(name, example, 0)
    if "email" in name:
        return next((word for word in candidates if "@" in word), example)
    if "zip" in name:
        return next((word for word in candidates if re.fullmatch(r"\d{5}", word)), example)
    if _WORDS.search(name) and number == 0:
        return task_text[-500:]
    return candidates[number] if candidates else example
