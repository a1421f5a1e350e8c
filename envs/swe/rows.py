"""Rows from a folder of tasks, by default from the bundled sample repository."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.data.swe.sample_store import SAMPLE, sample_store
from verl_agentic.rewards.repository.repo_task import RepoTask, TaskStore

from .env import ground_truth
from .scaffold import load_scaffold

_TEST_SHARE = 4  # one mined task in four belongs to the test split


def make_rows(
    *,
    split: Literal["train", "test"],
    count: int,
    seed: int,
    tasks: str | None = None,
    kinds: Sequence[str] | None = None,
    max_tests: int | None = None,
    scaffold: str = "editor",
) -> list[EnvRow]:
    """Returns up to `count` rows of different tasks; equal arguments give equal rows.

    A fourth of the tasks belongs to the test split, by the hash of `instance_id`; half of those of the sample.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the order.
        tasks: folder of `verl-agentic swe mine`, or its `tasks.jsonl`; None: the bundled sample.
        kinds: only tasks of these kinds (`release`, `hunk`, `mutation`, `combined`, `imported`).
        max_tests: only tasks with at most this number of tests to fix.
        scaffold: the prompt's scaffold; the environment makes the prompt again, with the path in the sandbox.

    Raises:
        ConfigError: an unknown split, or fewer than `count` tasks.
        DataError: the folder has no tasks.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be train or test, got {split!r}")
    store = sample_store() if tasks is None else TaskStore(Path(tasks).expanduser().resolve())
    is_wanted = [
        task
        for task in store.tasks()
        if _is_test(task) == (split == "test")
        and (kinds is None or task.kind in kinds)
        and (max_tests is None or len(task.fail_to_pass) <= max_tests)
    ]
    random.Random(seed).shuffle(is_wanted)
    if len(is_wanted) < count:
        raise ConfigError(f"found only {len(is_wanted)} tasks of split {split!r} in {store.path}, got {count=}")
    form, place = load_scaffold(scaffold), "" if tasks is None else str(store.path)
    return [
        EnvRow(
            prompt=(
                Message("system", form.system),
                Message("user", form.task.format(root="the repository", issue=task.problem_statement.strip())),
            ),
            ground_truth=ground_truth(task),
            data_source="swe",
            extra={
                "task": task.to_json(),
                "store": place,
                "task_id": task.instance_id,
            },
        )
        for task in is_wanted[:count]
    ]


def _is_test(task: RepoTask) -> bool:
    if task.repo == SAMPLE:
        return int(task.instance_id[-2:]) % 2 == 0
    return zlib.crc32(task.instance_id.encode()) % _TEST_SHARE == 0
