"""Rows: a page and a seed; train and test share no seed."""

from __future__ import annotations

from verl_agentic.base.env import EnvRow
from verl_agentic.base.env_card import read_tasks
from verl_agentic.base.types import Message
from verl_agentic.bridges.task_rows import Split, draw_rows


def make_rows(*, split: Split, count: int, seed: int, task: str | None = None) -> list[EnvRow]:
    """Returns `count` different pages; equal arguments give equal pages.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: which pages.
        task: one of the tasks; None: all in turn.

    Raises:
        ConfigError: an unknown split or task.
    """
    tasks = read_tasks(__file__)
    return draw_rows(tasks, _make_row, task=task, split=split, count=count, seed=seed, is_hidden=True)


def _make_row(task: str, seed: int) -> EnvRow:
    return EnvRow(
        prompt=(Message("user", f"Solve the task {task} on a web page."),),
        data_source="miniwob",
        extra={"task": task, "seed": seed, "task_id": f"{task}-{seed}"},
    )
