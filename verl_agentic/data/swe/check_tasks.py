"""Checks of tasks: the reference solution passes and the base tree fails, by name, in every run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.data.swe.make_task import with_changes
from verl_agentic.data.swe.outcomes import wrong_tests
from verl_agentic.data.swe.suite import Suites
from verl_agentic.errors import DataError
from verl_agentic.rewards.repository.accepted import accept
from verl_agentic.rewards.repository.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.rewards.repository.tree_diffs import changed_by


@dataclass(frozen=True, kw_only=True)
class TaskCheck:
    """The result of one task."""

    instance_id: str
    problems: tuple[str, ...]
    """Contradictions; empty if the task holds."""
    runs: int

    @property
    def ok(self) -> bool:
        """Whether the task holds."""
        return not self.problems


async def check_tasks(
    tasks: Sequence[RepoTask],
    store: TaskStore,
    suites: Suites,
    *,
    runs: int,
    on_result: Callable[[dict[str, Any], int], None],
) -> list[TaskCheck]:
    """Runs the hidden tests of each task on its base tree and with its reference solution.

    A task holds if the base fails every FAIL_TO_PASS test and passes every PASS_TO_PASS test, and if the solution
    passes all of them, in each run. The solution must also be accepted by the grader.

    Args:
        tasks: of the store.
        store: has the files.
        suites: runs tests.
        runs: number of runs of each tree.
        on_result: called with each result and the number of tasks.
    """

    async def check(task: RepoTask) -> TaskCheck:
        try:
            problems = await _problems(task, store, suites, runs=runs)
        except DataError as error:
            problems = [str(error)]
        found = TaskCheck(instance_id=task.instance_id, problems=tuple(problems), runs=runs)
        on_result({"key": task.instance_id, "status": "holds" if found.ok else problems[0]}, len(tasks))
        return found

    return list(await asyncio.gather(*map(check, tasks)))


async def _problems(task: RepoTask, store: TaskStore, suites: Suites, *, runs: int) -> list[str]:
    base = await asyncio.to_thread(read_tree, store.base(task))
    hidden, site = store.hidden_tests(task), store.site(task)
    solution = changed_by(base, task.patch)
    accepted = accept(base, solution)
    problems = [f"the grader refuses {path}: {reason}" for path, reason in accepted.refused.items()]
    if not task.fail_to_pass:
        problems.append("no test fails before the change")
    trees = {
        "base": with_changes(base, dict(hidden)),
        "solution": with_changes(base, {**accepted.files, **hidden}),
    }
    for name, tree in trees.items():
        for number in range(1, runs + 1):
            run = await suites.run(tree, site=site, targets=task.targets)
            if not run.ended and name == "solution":
                problems.append(f"{name}, run {number}: the tests do not end")
            wrong = wrong_tests(run, f2p=task.fail_to_pass, p2p=task.pass_to_pass, is_fixed=name == "solution")
            if wrong:
                shown = ", ".join(f"{test} is {outcome}" for test, outcome in list(wrong.items())[:3])
                problems.append(f"{name}, run {number}: {len(wrong)} tests are wrong: {shown}")
    return problems
