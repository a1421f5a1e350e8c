"""Tasks for rows: of a folder or of the bundled sample, divided into train and test."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.grading.runners.registry import REPORT_RUNNERS
from verl_agentic.swe.sample_store import SAMPLE, sample_store

_SAMPLE_PLACE = "sample:"
_TEST_SHARE = 4  # one mined task in four belongs to the test split


@dataclass(frozen=True, kw_only=True)
class ChosenTasks:
    """Tasks of one split."""

    store: TaskStore
    place: str
    """The store for `store_at`: its folder, `sample:NAME`, or empty for the sample."""
    tasks: Sequence[RepoTask]


def choose_tasks(
    *,
    split: Literal["train", "test"],
    count: int,
    seed: int,
    folder: str | None,
    kinds: Sequence[str] | None = None,
    max_tests: int | None = None,
    is_wanted: Callable[[RepoTask], bool] = lambda task: True,
) -> ChosenTasks:
    """Returns `count` different tasks; equal arguments give equal tasks.

    A fourth of the tasks belongs to the test split, by the hash of `instance_id`; half of those of the sample.

    Args:
        split: `train` or `test`.
        count: number of tasks.
        seed: of the order.
        folder: of `verl-agentic swe mine`, or its `tasks.jsonl`; None: the bundled sample; `sample:NAME`: that of the
            runner `node`, `go` or `cargo`.
        kinds: only tasks of these kinds (`repo_task.KINDS`).
        max_tests: only tasks with at most this number of tests to fix.
        is_wanted: a further condition.

    Raises:
        ConfigError: an unknown split, or fewer than `count` tasks.
        DataError: the folder has no tasks.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be train or test, got {split!r}")
    is_sample = folder is None or folder.startswith(_SAMPLE_PLACE)
    place = (folder or "") if is_sample else str(Path(folder or "").expanduser().resolve())
    store = store_at(place)
    candidates = [
        task
        for task in store.tasks()
        if _is_test(task) == (split == "test")
        and (kinds is None or task.kind in kinds)
        and (max_tests is None or len(task.fail_to_pass) <= max_tests)
        and is_wanted(task)
    ]
    random.Random(seed).shuffle(candidates)
    if len(candidates) < count:
        raise ConfigError(
            f"found only {len(candidates)} tasks of split {split!r} in {store.path}, got {count=}; ask for fewer, or "
            "make more with verl-agentic swe mine"
        )
    return ChosenTasks(store=store, place=place if is_sample else str(store.path), tasks=candidates[:count])


def require_trees(place: str, keys: Mapping[str, str]) -> None:
    """Refuses tasks whose base trees are not in a store: imported tasks have their files in Docker images.

    Args:
        place: of the store, for `store_at`.
        keys: id of each task -> key of its base tree.

    Raises:
        DataError: the message has their number.
    """
    trees = store_at(place).folder / "trees"
    if missing := [task for task, key in keys.items() if not key or not (trees / key).is_dir()]:
        raise DataError(
            f"{len(missing)} of {len(keys)} tasks have no files in {trees}, got {missing[0]}; imported tasks have "
            "theirs in Docker images, which only the environment swe reads: use swe, or tasks of verl-agentic swe mine "
            "(copy its whole folder)"
        )


def store_at(place: str) -> TaskStore:
    """Returns the store of a folder, of the sample if `place` is empty, or of that of a runner (`sample:NAME`).

    Raises:
        ConfigError: there is no sample of this runner.
    """
    if not place.startswith(_SAMPLE_PLACE):
        return TaskStore(Path(place)) if place else sample_store()
    runner = place.removeprefix(_SAMPLE_PLACE)
    if runner not in REPORT_RUNNERS:
        raise ConfigError(f"a sample is one of {', '.join(REPORT_RUNNERS)}, got {runner!r}; choose one of them")
    return sample_store(runner)


def _is_test(task: RepoTask) -> bool:
    if task.repo.startswith(SAMPLE):
        return int(task.instance_id[-2:]) % 2 == 0
    return zlib.crc32(task.instance_id.encode()) % _TEST_SHARE == 0
