"""Rows of the demo server, and their solution."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, ToolCall

from .demo_server import IDS, PLACES, stock_of

_NUM_TEST = 80
_SYSTEM = "Use the tools to answer. Give the number alone."


def make_rows(*, split: str, count: int, seed: int) -> list[EnvRow]:
    """Returns rows that ask for the stock of an item in one place: 400 are for training, 80 for tests.

    Raises:
        ConfigError: `count` is too large.
    """
    pairs = list(itertools.product(IDS, PLACES))
    random.Random(0).shuffle(pairs)
    pairs = pairs[:_NUM_TEST] if split == "test" else pairs[_NUM_TEST:]
    if count > len(pairs):
        raise ConfigError(f"the demo server has {len(pairs)} rows for {split!r}, got count {count}; ask for fewer")
    return [_make_row(name, place) for name, place in random.Random(seed).sample(pairs, count)]


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that looks for the item's id, asks for its stock, and answers."""
    name = row.extra["item"]

    def next_message(messages: Sequence[Message]) -> Message:
        num_turns = sum(message.role == "assistant" for message in messages)
        if num_turns == 0:
            return Message("assistant", "", tool_calls=(ToolCall("find_item", {"name": name}),))
        if num_turns == 1:
            return Message("assistant", "", tool_calls=(ToolCall("stock", {"item": messages[-1].content}),))
        return Message("assistant", str(row.ground_truth))

    return next_message


def _make_row(name: str, place: str) -> EnvRow:
    question = f"How many of the item {name!r} are in {place}?"
    return EnvRow(
        prompt=(Message("system", _SYSTEM), Message("user", question)),
        ground_truth=str(stock_of(IDS[name])[place]),
        data_source="mcp_demo",
        extra={"task_id": f"{name}, {place}", "item": name},
    )
