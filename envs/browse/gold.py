"""The solution: the searches and pages of the chain, then the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall
from verl_agentic.rewards.answers.short_answers import golden_answers_of


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that takes the steps of `extra["steps"]`, and then answers; for rows of files, at once."""
    steps = json.loads(row.extra["steps"])
    answer = golden_answers_of(row.ground_truth)[0]

    def next_message(messages: Sequence[Message]) -> Message:
        played = sum(message.role == "assistant" for message in messages[len(row.prompt) :])
        return to_call(*steps[played]) if played < len(steps) else final(answer)

    return next_message


def to_call(name: str, text: str) -> Message:
    """Returns the turn of a step."""
    argument = {"search": "query", "open": "title", "find": "text"}[name]
    return Message("assistant", "", tool_calls=(ToolCall(name, {argument: text}),))


def final(answer: str) -> Message:
    """Returns the last turn."""
    return Message("assistant", f"FINAL ANSWER: {answer}")
