"""The reference solution as a policy: it answers with the edits of the task's patch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message
from verl_agentic.swe.grading.repo_task import RepoTask, read_tree
from verl_agentic.swe.grading.tree_diffs import changed_by
from verl_agentic.swe.task_split import store_at

from .edits import written_edits


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that writes the reference patch as search/replace edits. Deleted files become empty."""
    task = RepoTask.from_json(row.extra["task"])
    base = read_tree(store_at(row.extra["store"]).base(task))
    answer = written_edits(base, changed_by(base, task.patch))
    return lambda messages: Message("assistant", answer)
