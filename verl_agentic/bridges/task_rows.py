"""Rows of bridges whose tasks are generated from a number: different ones, in disjoint splits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import did_you_mean

Split = Literal["train", "test"]
DrawRow = Callable[[str, int], EnvRow | None]
"""The row of a task and a number; None if this number gives no usable row. Equal arguments give equal rows."""
_TEST_PART = 5  # a fifth of all numbers, and of all prompts, is for tests
_MAX_MISSES = 200  # maximum consecutive numbers without a new row


def draw_rows(
    tasks: Sequence[str],
    draw: DrawRow,
    *,
    task: str | None,
    split: Split,
    count: int,
    seed: int,
    is_hidden: bool = False,
) -> list[EnvRow]:
    """Returns `count` different rows; the splits share no prompt, or no number.

    Args:
        tasks: names of all tasks.
        task: the only task of the rows; None: all of them in turn.
        split: `train` or `test`.
        is_hidden: whether prompts do not show what the problem is, such as a secret. Rows then differ by their numbers,
            and not by their prompts.

    Raises:
        ConfigError: an unknown task or split, or too few different rows.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be 'train' or 'test', got {split!r}")
    if task is not None and task not in tasks:
        raise ConfigError(f"unknown task, got {task!r}; use one of {list(tasks)}{did_you_mean(task, tasks)}")
    chosen = tasks if task is None else [task]
    streams = {name: _iter_rows(name, draw, split=split, seed=seed, is_hidden=is_hidden) for name in chosen[:count]}
    return [next(streams[chosen[index % len(chosen)]]) for index in range(count)]


def _iter_rows(task: str, draw: DrawRow, *, split: Split, seed: int, is_hidden: bool) -> Iterator[EnvRow]:
    rng = random.Random(f"{task}/{split}/{seed}")
    keys: set[str] = set()
    misses = 0
    while misses < _MAX_MISSES:
        number = _TEST_PART * rng.randrange(2**26) + (0 if split == "test" else rng.randrange(1, _TEST_PART))
        row = draw(task, number)
        key = "" if row is None else str(number) if is_hidden else row.prompt[-1].content
        if row is None or key in keys or not (is_hidden or _split_of(key) == split):
            misses += 1
            continue
        keys.add(key)
        misses = 0
        yield row
    raise ConfigError(
        f"there are hardly more than {len(keys)} different {split} rows of {task!r}; lower count, or choose options "
        "that have more"
    )


def _split_of(prompt: str) -> Split:
    return "test" if hashlib.sha256(prompt.encode()).digest()[0] % _TEST_PART == 0 else "train"
