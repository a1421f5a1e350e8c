"""Rows of BFCL, and their solution."""

from __future__ import annotations

import functools
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.env_card import read_tasks
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.env_package import EnvPackage, load_env_package

from .data import data_file, read_call, task_of, tasks

_CATEGORIES = read_tasks(__file__)
"""Not listed: `irrelevance` and `live_irrelevance`, whose check accepts any text without a call, and categories without
answers or a back end (memory, web search, Java, JavaScript, `live_relevance`)."""


def make_rows(*, split: str, count: int, seed: int, task: str | None = None, train_share: float = 0.75) -> list[EnvRow]:
    """Returns different rows of one category, or of all of them mixed.

    Args:
        split: `train` or `test`. Multi-turn categories are variants of the same scenarios, so all split the scenarios.
        count: number of rows.
        seed: of their choice and order.
        task: a category; None mixes all.
        train_share: share of the scenarios or rows for training. 0: all are test rows, as on the leaderboard.

    Raises:
        ConfigError: `count` is too large.
    """
    categories = _CATEGORIES if task is None else (task,)
    rows = [row for name in categories for row in _select_split(_load_rows(name), split=split, train_share=train_share)]
    if count > len(rows):
        raise ConfigError(f"bfcl has {len(rows)} rows for {split!r}, got count {count}; ask for fewer")
    return random.Random(seed).sample(rows, count)


def single_turn() -> EnvPackage:
    """Returns the environment that plays the single-turn rows."""
    return load_env_package("function_calling")


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that makes the calls of the solution, a few in a turn, and ends each turn of the user."""
    if "case" in row.extra:
        solution = single_turn().gold
        assert solution is not None
        return solution(row)
    task, turns = task_of(row.extra["task_id"]), json.loads(row.ground_truth)
    script = [message for calls in turns for message in (*_iter_call_messages(calls, task), _DONE)]

    def next_message(messages: Sequence[Message]) -> Message:
        return script[sum(message.role == "assistant" for message in messages)]

    return next_message


_DONE = Message("assistant", "That is all that I can do now.")
_CALLS = 4  # in a turn: the longest solution has 34, and a user's turn may have 20 steps


def _iter_call_messages(texts: Sequence[str], task: Mapping[str, Any]) -> Iterator[Message]:
    calls = [ToolCall(*read_call(text, task)) for text in texts]
    for start in range(0, len(calls), _CALLS):
        yield Message("assistant", "", tool_calls=tuple(calls[start : start + _CALLS]))


@functools.cache
def _load_rows(category: str) -> Mapping[int, EnvRow]:
    """Returns number -> row of a category; the number of a multi-turn row is that of its scenario."""
    if category.startswith("multi_turn"):
        return {int(task_id.rpartition("_")[2]): _make_row(task) for task_id, task in tasks(category).items()}
    module = sys.modules[single_turn().make_env.__module__.rpartition(".")[0]]
    rows = module.from_bfcl(data_file(f"BFCL_v4_{category}.json"), skip_bad_records=True)
    return dict(enumerate(rows))


def _select_split(rows: Mapping[int, EnvRow], *, split: str, train_share: float) -> list[EnvRow]:
    """Returns the rows of a split: whether a number is for training depends on nothing else."""
    is_train = {number: random.Random(number).random() < train_share for number in rows}
    return [row for number, row in rows.items() if is_train[number] is (split == "train")]


def _make_row(task: Mapping[str, Any]) -> EnvRow:
    return EnvRow(
        prompt=tuple(Message(message["role"], message["content"]) for message in task["question"][0]),
        ground_truth=json.dumps(task["solution"]),
        data_source=f"bfcl/{task['id'].rpartition('_')[0]}",
        extra={"task_id": task["id"]},
    )
