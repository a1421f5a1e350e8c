"""The solution of every row: look-ups, a question for the customer's yes, the changes, and the required replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall

from .scenario import Step

CLOSING = "Is there anything else?"


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that takes the steps of `extra["solution"]`, and then asks whether there is anything else."""
    steps: list[Step] = json.loads(row.extra["solution"])

    def next_message(messages: Sequence[Message]) -> Message:
        played = sum(message.role == "assistant" for message in messages[len(row.prompt) :])
        return to_turn(steps[played] if played < len(steps) else CLOSING)

    return next_message


def to_turn(step: Step) -> Message:
    """Returns the turn of a step."""
    if isinstance(step, str):
        return Message("assistant", step)
    return Message("assistant", "", tool_calls=(ToolCall(step["name"], step["arguments"]),))
