"""SFT conversations of three classes from `function_calling`: dialogue, tool format, and negative samples.

`dialogue` decides on calls in plain language (which tool, which arguments), without any format. `format` makes calls in
the format of the chat template. `negative` has tools that do not fit, a value that is missing, or no tools at all, and
its answer makes no call.

Paper: https://arxiv.org/abs/2403.12881 (Agent-FLAN: agent data as chat, and negative samples)

Deviations: solutions of `function_calling` instead of those of a model; a model may reword the requests. Shares are
those of the classes, not of the capabilities (reasoning, retrieval, understanding, instruction following).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings
from verl_agentic.base.tools.schema_check import ArgumentSchema, argument_schema
from verl_agentic.base.types import Message
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask, needed
from verl_agentic.data.making.play_solution import play_solution
from verl_agentic.episode.codec.codec import Schema
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.models.chat_model import ChatModel

_CLASSES = ("dialogue", "format", "negative")
_CALLS = ("single", "multiple", "parallel", "parallel_multiple", "sequential")
_NO_CALL = ("missing_function", "missing_parameter", "no_tools")
_REWORD = (
    "Say the following request in other words. Keep every name, number, date and other value exactly as it is, and "
    "answer with the new request alone.\n\n{}"
)


class AgentFlanMaker(Settings):
    """Options."""

    mix: Mapping[str, float] = field(default_factory=lambda: {"dialogue": 0.4, "format": 0.4, "negative": 0.2})
    """Class -> share."""
    reword: bool = False
    """Let the model reword the requests."""

    def check_together(self) -> None:
        if not set(self.mix) <= set(_CLASSES) or abs(sum(self.mix.values()) - 1) > 1e-6:
            raise ConfigError(f"the shares of {_CLASSES} must sum to 1, got {dict(self.mix)}; change mix")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields conversations; the classes have their shares in every prefix."""
        chat = needed(model, "agent_flan with reword") if self.reword else None
        counts = dict.fromkeys(self.mix, 0)
        for number in range(n):
            kind = max(self.mix, key=lambda name: self.mix[name] * (number + 1) - counts[name])
            cases = _NO_CALL if kind == "negative" else _CALLS
            case = cases[counts[kind] % len(cases)]
            counts[kind] += 1
            yield Candidate(
                key=f"{seed}-{number}-{kind}-{case}",
                record=lambda number=number, kind=kind, case=case: _make_conversation(kind, case, seed, number, chat),
            )

    async def verify(self, record: Record) -> str | None:
        """Returns why a conversation is wrong: a call where none fits, or calls that do not fit the tools."""
        calls = [call for message in record["messages"] for call in message.get("tool_calls") or ()]
        if record["class"] != "format":
            if calls:
                return f"{record['class']} with a call: {calls[0]}"
            return _dialogue_fault(record) if record["class"] == "dialogue" else None
        schemas = _index_schemas(record)
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if name not in schemas or schemas[name].mismatches(arguments):
                return f"a call does not fit: {call}"
        return None if calls else "format without a call"


async def _make_conversation(kind: str, case: str, seed: int, number: int, model: ChatModel | None) -> Record:
    package = load_env_package("function_calling")
    assert package.make_rows is not None and package.gold is not None
    own_seed = random.Random(f"{seed}/{number}").randrange(2**31)
    cases = ["single" if case == "no_tools" else case]
    (row,) = package.make_rows(split="train", count=1, seed=own_seed, cases=cases)
    if model is not None:
        row = await _reword_request(row, model)
    if case == "no_tools":
        request = [message for message in row.prompt if message.role == "user"]
        answer = Message("assistant", "I cannot do this: I have no tools.")
        return _make_record(kind, case, [Message("system", "You are a helpful assistant."), *request, answer], [])
    messages, tools, outcome = await play_solution(package.make_env(row), package.gold(row))
    if outcome < 1:
        raise RefusedError(f"the solution fails: outcome {outcome}")
    return _make_record(kind, case, _as_dialogue(messages, tools) if kind == "dialogue" else messages, tools)


async def _reword_request(row: EnvRow, model: ChatModel) -> EnvRow:
    *before, request = row.prompt
    text = await ask(model, _REWORD.format(request.content))
    values = [value for call in json.loads(row.ground_truth or "[]") for value in _iter_texts(call)]
    lost = [value for value in values if value in request.content and value not in text]
    if lost or not text:
        raise RefusedError(f"a value is lost in other words: {lost}")
    return replace(row, prompt=(*before, replace(request, content=text)))


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _iter_texts(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _as_dialogue(messages: Sequence[Message], tools: Sequence[Schema]) -> list[Message]:
    """Returns a conversation in which every call is decided in plain language."""
    listed = "\n".join(f"{tool['function']['name']}: {tool['function']['description']}" for tool in tools)
    dialogue = [Message("system", f"You decide which tools a request needs. The tools are:\n{listed}")]
    results = [message.content for message in messages if message.role == "tool"]
    question = next(message.content for message in messages if message.role == "user")
    for message in messages:
        for call in message.tool_calls:
            dialogue += [
                Message("user", f"{question}\n\nWhich tool comes next?".lstrip()),
                Message("assistant", call.name),
                Message("user", "With which arguments? Answer in JSON."),
                Message("assistant", json.dumps(dict(call.arguments), ensure_ascii=False)),
            ]
            question = f"The result is: {results.pop(0)}" if results else ""
    last = Message("user", f"{question}\n\nIs anything left to do?".lstrip())
    return [*dialogue, last, Message("assistant", messages[-1].content)]


def _dialogue_fault(record: Record) -> str | None:
    schemas = _index_schemas(record)
    answers = [message["content"] for message in record["messages"] if message["role"] == "assistant"][:-1]
    for name, arguments in zip(answers[::2], answers[1::2], strict=True):
        if name not in schemas or schemas[name].mismatches(json.loads(arguments)):
            return f"a call does not fit: {name} {arguments}"
    return None if answers else "dialogue without a call"


def _index_schemas(record: Record) -> dict[str, ArgumentSchema]:
    functions = [tool["function"] for tool in record["tools"]]
    return {function["name"]: argument_schema(function["parameters"]) for function in functions}


def _make_record(kind: str, case: str, messages: Sequence[Message], tools: Sequence[Schema]) -> Record:
    return {
        "class": kind,
        "case": case,
        "messages": [message.to_dict() for message in messages],
        "tools": [dict(tool) for tool in tools],
        "data_source": f"agent_flan/{kind}",
    }


MAKER = AgentFlanMaker
