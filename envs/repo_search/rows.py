"""Rows: questions about installed packages, and the places that the fixes of tasks change."""

from __future__ import annotations

import functools
import json
import random
import zlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

from verl_agentic import ConfigError, EnvRow
from verl_agentic.swe.grading.tree_diffs import hunk_ranges
from verl_agentic.swe.task_split import choose_tasks, require_trees

from .env import prompt_of
from .questions import questions_about
from .trees import package_files, package_key

PACKAGES = ("jinja2", "jsonschema", "packaging", "rich")
"""Packages that this one requires, so that they are always installed."""
_TEST_SHARE = 4  # one question in four belongs to the test split
_ISSUE = "Which lines must change to fix this issue? Name them with the lines around them.\n\n{issue}"


def make_rows(
    *,
    split: Literal["train", "test"],
    count: int,
    seed: int,
    source: Literal["packages", "tasks"] = "packages",
    packages: Sequence[str] = PACKAGES,
    tasks: str | None = None,
) -> list[EnvRow]:
    """Returns `count` rows of different questions; equal arguments give equal rows.

    Args:
        split: `train` or `test`. The splits share no question and no task.
        count: number of rows.
        seed: of the choice and the order.
        source: `packages`: questions about Python sources: what a docstring describes, and where a name is defined and
            called, alternately. `tasks`: the hunks of the reference patch of tasks that fix repositories.
        packages: names of installed distributions.
        tasks: folder of `verl-agentic swe mine`, or its `tasks.jsonl`; None: the bundled sample.

    Raises:
        ConfigError: an unknown split or source, a package that is not installed, or fewer than `count` questions.
        DataError: the folder has no tasks, or not their trees.
    """
    if split not in ("train", "test") or source not in ("packages", "tasks"):
        raise ConfigError(f"split must be train or test, source packages or tasks, got {split!r} and {source!r}")
    if source == "tasks":
        return _task_rows(split, count, seed, tasks)
    rows_by_kind: dict[str, list[EnvRow]] = {}
    for package in sorted(set(packages)):
        for row, kind in _package_rows(package):
            if (zlib.crc32(row.extra["task_id"].encode()) % _TEST_SHARE == 0) == (split == "test"):
                rows_by_kind.setdefault(kind, []).append(row)
    for rows in rows_by_kind.values():
        random.Random(f"{split}/{seed}").shuffle(rows)
    mixed = [row for pair in zip(*rows_by_kind.values(), strict=False) for row in pair]
    if len(mixed) < count:
        raise ConfigError(f"found only {len(mixed)} questions of split {split!r} about {list(packages)}, got {count=}")
    return mixed[:count]


@functools.lru_cache(maxsize=16)
def _package_rows(package: str) -> Sequence[tuple[EnvRow, str]]:
    origin = {"package": package, "tree": package_key(package), "version": version(package)}
    return [
        (_build_row(question.query, question.places, task_id=f"{package}/{question.id}", **origin), question.kind)
        for question in questions_about(package_files(package))
    ]


def _task_rows(split: Literal["train", "test"], count: int, seed: int, folder: str | None) -> list[EnvRow]:
    chosen = choose_tasks(
        split=split, count=count, seed=seed, folder=folder, is_wanted=lambda task: bool(hunk_ranges(task.patch))
    )
    require_trees(chosen.place, {task.instance_id: task.base_commit for task in chosen.tasks})
    rows = []
    for task in chosen.tasks:
        places = hunk_ranges(task.patch)
        issue = _ISSUE.format(issue=task.problem_statement.strip())
        rows.append(_build_row(issue, places, task_id=task.instance_id, tree=task.base_commit, store=chosen.place))
    return rows


def _build_row(query: str, places: Any, **extra: str) -> EnvRow:
    return EnvRow(
        prompt=prompt_of(query),
        ground_truth=json.dumps(places),
        data_source="repo_search",
        extra={"query": query, "package": "", "store": "", "version": "", **extra},
    )
