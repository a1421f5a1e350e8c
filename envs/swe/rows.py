"""Rows from a folder of tasks, by default from the bundled sample repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from verl_agentic import EnvRow, Message
from verl_agentic.swe.grading.pytest_ids import require_pytest
from verl_agentic.swe.task_split import choose_tasks

from .env import ground_truth
from .scaffold import load_scaffold


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
    """Returns `count` rows of different tasks; equal arguments give equal rows.

    A fourth of the tasks belongs to the test split, by the hash of `instance_id`; half of those of the sample.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the order.
        tasks: folder of `verl-agentic swe mine`, or its `tasks.jsonl`; None: the bundled sample; `sample:node`,
            `sample:go`, `sample:cargo`: the sample of another language.
        kinds: only tasks of these kinds (`release`, `hunk`, `mutation`, `combined`, `imported`).
        max_tests: only tasks with at most this number of tests to fix.
        scaffold: the prompt's scaffold; the environment makes the prompt again, with the path in the sandbox.

    Raises:
        ConfigError: an unknown split, or fewer than `count` tasks.
        DataError: the folder has no tasks, or tasks whose tests pytest cannot run.
    """
    chosen = choose_tasks(split=split, count=count, seed=seed, folder=tasks, kinds=kinds, max_tests=max_tests)
    require_pytest(chosen.tasks)
    form = load_scaffold(scaffold)
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
                "store": chosen.place,
                "task_id": task.instance_id,
            },
        )
        for task in chosen.tasks
    ]
