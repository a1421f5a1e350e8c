"""Rows: a page and a seed; train and test share no seed."""

from __future__ import annotations

import random
from typing import Literal

from verl_agentic.env import EnvRow
from verl_agentic.env_card import read_tasks
from verl_agentic.errors import ConfigError
from verl_agentic.settings import did_you_mean
from verl_agentic.types import Message

_TEST_PART = 5  # every fifth seed is for tests


def make_rows(*, split: Literal["train", "test"], count: int, seed: int, task: str | None = None) -> list[EnvRow]:
    """Returns `count` different pages; equal arguments give equal pages.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: which pages.
        task: one of the tasks; None: all in turn.

    Raises:
        ConfigError: an unknown split or task.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be 'train' or 'test', got {split!r}")
    known = read_tasks(__file__)
    if task is not None and task not in known:
        raise ConfigError(f"unknown task, got {task!r}; use one of {list(known)}{did_you_mean(task, known)}")
    chosen = known if task is None else (task,)
    rng = random.Random(f"{split}/{seed}")
    numbers = rng.sample(range(2**24), count)
    seeds = [_TEST_PART * number + (0 if split == "test" else rng.randrange(1, _TEST_PART)) for number in numbers]
    return [_row(chosen[index % len(chosen)], number) for index, number in enumerate(seeds)]


def _row(task: str, seed: int) -> EnvRow:
    return EnvRow(
        prompt=(Message("user", f"Solve the task {task} on a web page."),),
        data_source="miniwob",
        extra={"task": task, "seed": seed, "task_id": f"{task}-{seed}"},
    )
