"""Rows of a taskset of verifiers, and the solution of the example."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
from verl_agentic.bridges.foreign_episode import draw_numbers
from verl_agentic.bridges.verifiers.served import EXAMPLE, key_of, load


def make_rows(
    *,
    split: str,
    count: int,
    seed: int,
    taskset: str = "",
    env: Mapping[str, Any] | None = None,
    limit: int = 10_000,
    has_splits: bool = True,
) -> list[EnvRow]:
    """Returns rows of different tasks.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the choice.
        taskset: id of an installed taskset. Empty: that of `env`, or the example.
        env: the configuration `env` of verifiers; see `make_env`.
        limit: number of tasks that are read, for tasksets without an end.
        has_splits: whether a fifth of the tasks is kept for `test`; false if the taskset itself is one split.

    Raises:
        ConfigError: a wrong option, an unknown split, or too few tasks.
        MissingDependencyError: verifiers is not installed.
    """
    loaded = load(key_of(taskset, env))
    tasks = list(itertools.islice(loaded.taskset, limit))
    if has_splits:
        numbers = draw_numbers(split=split, count=count, seed=seed, limit=len(tasks))
    elif count <= len(tasks):
        numbers = random.Random(f"{split}/{seed}").sample(range(len(tasks)), count)
    else:
        raise ConfigError(f"the taskset has {len(tasks)} tasks, got count={count}; lower it")
    return [_make_row(tasks[number], number=number, name=loaded.config.env_id) for number in numbers]


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that guesses the number of the example after a wrong guess.

    Raises:
        ConfigError: the row is of another taskset.
    """
    if row.extra.get("taskset") != EXAMPLE:
        raise ConfigError(f"only the example has solutions, got a row of {row.extra.get('taskset')!r}; give none")
    secret = row.ground_truth["secret"]
    return lambda messages: Message("assistant", str(secret if len(messages) > 1 else secret + 1))


def _make_row(task: Any, *, number: int, name: str) -> EnvRow:
    """Returns the row of a task. verifiers makes the real prompt itself, in the first request of the episode."""
    data = task.data
    before = [Message("system", data.system_prompt)] if data.system_prompt else []
    prompt = [Message("user", data.prompt_text or data.description or data.name or f"Task {number}")]
    extra = {"task_id": f"{name}-{number}", "taskset": name}
    truth = data.model_dump(mode="json", exclude_defaults=True)
    return EnvRow(prompt=(*before, *prompt), ground_truth=truth, data_source="verifiers", extra=extra)
