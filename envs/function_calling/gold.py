"""The solution of every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_agentic import EnvRow, Message, ToolCall

from .answers import TOPICS
from .env import FunctionRow
from .match import ExpectedCall

_DONE = "Done: all the calls were answered."
_REFUSAL = "I cannot do this: none of the tools that I have fits."


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that makes the expected calls, independent ones in one turn, and then answers. If no call is
    expected, it says that no tool fits, or asks for the missing value."""
    task = FunctionRow.read(row)
    calls = [ToolCall(call.name, needed_arguments(call, task)) for call in task.expected]
    turns = [[call] for call in calls] if task.case == "sequential" else [calls] if calls else []
    answer = _DONE if calls else _REFUSAL if task.asks is None else f"Which {TOPICS[task.asks][0]} do you mean?"

    def next_message(messages: Sequence[Message]) -> Message:
        played = sum(message.role == "assistant" for message in messages[len(row.prompt) :])
        if played < len(turns):
            return Message("assistant", "", tool_calls=tuple(turns[played]), reasoning="These calls are needed.")
        return Message("assistant", answer, reasoning="No further call is needed.")

    return next_message


def needed_arguments(call: ExpectedCall, task: FunctionRow) -> Mapping[str, Any]:
    """Returns the arguments of a call without optional ones."""
    required = task.schemas[call.name].schema.get("required", ())
    return {k: v for k, v in call.arguments.items() if k not in call.optional or k in required}
