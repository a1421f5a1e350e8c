"""The solution: a search, the product of the goal, its options, and the purchase."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall

from .product import Goal
from .store import BUY, NEXT


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that searches with `extra["search"]`, opens the product of the goal, chooses and buys it."""
    goal = Goal.read(row.ground_truth)

    def next_message(messages: Sequence[Message]) -> Message:
        actions = [_read_action(message) for message in messages if message.role == "assistant"]
        opened = f"click[{goal.asin.lower()}]"
        if not actions:
            return act(f"search[{row.extra['search']}]")
        if opened not in actions:
            return act(opened if f"[{goal.asin}]" in messages[-1].content else f"click[{NEXT}]")
        options = [value for value in goal.options if f"click[{value}]" not in actions]
        return act(f"click[{options[0] if options else BUY}]")

    return next_message


def act(action: str) -> Message:
    """Returns the turn of an action."""
    return Message("assistant", "", tool_calls=(ToolCall("act", {"action": action}),))


def _read_action(message: Message) -> str:
    return str(message.tool_calls[0].arguments.get("action", "")) if message.tool_calls else ""
