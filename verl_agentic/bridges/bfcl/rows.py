"""Rows of BFCL, and their solution."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.env import EnvRow
from verl_agentic.env_card import read_tasks
from verl_agentic.errors import ConfigError
from verl_agentic.types import Message, ToolCall

from .data import read_call, task_of, tasks

_CATEGORIES = read_tasks(__file__)
_NUM_SCENARIOS = 200


def make_rows(*, split: str, count: int, seed: int, task: str | None = None, train_share: float = 0.75) -> list[EnvRow]:
    """Returns different rows of one category, or of all of them mixed.

    Args:
        split: `train` or `test`. The categories are variants of the same 200 scenarios, so both split the scenarios.
        count: number of rows.
        seed: of their choice and order.
        task: a category; None mixes all.
        train_share: share of the scenarios that are for training. 0: all tasks are test rows, as on the leaderboard.

    Raises:
        ConfigError: `count` is too large.
    """
    scenarios = list(range(_NUM_SCENARIOS))
    random.Random(0).shuffle(scenarios)
    first_test = round(train_share * _NUM_SCENARIOS)
    chosen = sorted(scenarios[first_test:] if split == "test" else scenarios[:first_test])
    categories = _CATEGORIES if task is None else (task,)
    ids = [task_id for n in chosen for name in categories if (task_id := f"{name}_{n}") in tasks(name)]
    if count > len(ids):
        raise ConfigError(f"bfcl has {len(ids)} rows for {split!r}, got count {count}; ask for fewer")
    return [_row(task_of(task_id)) for task_id in random.Random(seed).sample(ids, count)]


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that makes the calls of the solution, a few in a turn, and ends each turn of the user."""
    task, turns = task_of(row.extra["task_id"]), json.loads(row.ground_truth)
    script = [message for calls in turns for message in (*_calling(calls, task), _DONE)]

    def next_message(messages: Sequence[Message]) -> Message:
        return script[sum(message.role == "assistant" for message in messages)]

    return next_message


_DONE = Message("assistant", "That is all that I can do now.")
_CALLS = 4  # in a turn: the longest solution has 34, and a user's turn may have 20 steps


def _calling(texts: Sequence[str], task: Mapping[str, Any]) -> Iterator[Message]:
    calls = [ToolCall(*read_call(text, task)) for text in texts]
    for start in range(0, len(calls), _CALLS):
        yield Message("assistant", "", tool_calls=tuple(calls[start : start + _CALLS]))


def _row(task: Mapping[str, Any]) -> EnvRow:
    return EnvRow(
        prompt=tuple(Message(message["role"], message["content"]) for message in task["question"][0]),
        ground_truth=json.dumps(task["solution"]),
        data_source=f"bfcl/{task['id'].rpartition('_')[0]}",
        extra={"task_id": task["id"]},
    )
