"""A journal beside a file of tasks, so that interrupted work continues where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.evaluate.journal import Journal
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore


class TaskJournal:
    """Results by unit of work, and the tasks that came of them."""

    def __init__(self, store: TaskStore) -> None:
        """Reads the journal of a store. Raises DataError if a line of it is no record."""
        self.store = store
        self._journal = Journal(store.path.with_suffix(".journal.jsonl"))

    def result(self, key: str) -> dict[str, Any] | None:
        """Returns the result of a unit of work, or None if it is not done."""
        return self._journal.records.get(key)

    def add(self, key: str, status: str, tasks: Sequence[RepoTask] = (), **figures: Any) -> dict[str, Any]:
        """Adds a finished unit of work and returns its result."""
        record = {"key": key, "status": status, **figures, "tasks": [task.to_json() for task in tasks]}
        self._journal.append(record)
        return record

    def write_tasks(self) -> list[RepoTask]:
        """Writes all tasks to the store's file, after those that other commands put there, and returns them."""
        tasks: dict[str, RepoTask] = {}
        if self.store.path.is_file():
            tasks = {task.instance_id: task for task in self.store.tasks()}
        for record in self._journal.records.values():
            for line in record.get("tasks", ()):
                task = RepoTask.from_json(line)
                tasks[task.instance_id] = task
        self.store.write(list(tasks.values()))
        return list(tasks.values())

    def close(self) -> None:
        """Closes the journal's file."""
        self._journal.close()


def statuses(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Returns status -> number of results, most frequent first."""
    return dict(Counter(result["status"] for result in results).most_common())


def tasks_in(result: dict[str, Any]) -> list[RepoTask]:
    """Returns the tasks of a result. Raises DataError if the result has none of the form of a task."""
    try:
        return [RepoTask.from_json(line) for line in result["tasks"]]
    except KeyError as cause:
        raise DataError(f"a record of the journal has no tasks, got {sorted(result)}; delete the journal") from cause
