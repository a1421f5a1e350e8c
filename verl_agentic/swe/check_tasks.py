"""Checks of tasks: the reference solution passes and the base tree fails, by name, in every run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError, EnvError
from verl_agentic.swe.grading.accepted import accept
from verl_agentic.swe.grading.grade import unprotected_tests
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.tree_diffs import changed_by
from verl_agentic.swe.make_task import with_changes
from verl_agentic.swe.outcomes import wrong_tests
from verl_agentic.swe.suite import Suites, suites


@dataclass(frozen=True, kw_only=True)
class TaskCheck:
    """The result of one task."""

    instance_id: str
    problems: tuple[str, ...]
    """Contradictions; empty if the task holds."""
    runs: int
    cpu_s: float = 0.0
    """CPU time of the tests."""

    @property
    def ok(self) -> bool:
        """The task holds: no run contradicts it."""
        return not self.problems


Check = Callable[[RepoTask], Awaitable[TaskCheck]]
"""Checks one task."""


@asynccontextmanager
async def task_checks(path: Path, *, runs: int, jobs: int, backend: str) -> AsyncIterator[Check]:
    """Starts a sandbox backend and yields the check of one task.

    A task holds if the base fails every FAIL_TO_PASS test and passes every PASS_TO_PASS test, and if the solution
    passes all of them, in each run. The solution must also be accepted by the grader, and the tests must be source that
    it can poison.

    Args:
        path: file of the tasks; their trees lie beside it.
        runs: number of runs of each tree.
        jobs: number of suites that run at one time.
        backend: of the sandboxes.
    """
    store = TaskStore(path)
    runners = {task.runner for task in store.tasks()}
    async with suites(jobs=jobs, backend=backend, runners=runners) as runner:

        async def check(task: RepoTask) -> TaskCheck:
            try:
                problems, cpu_s = await _find_problems(task, store, runner, runs=runs)
            except DataError as error:
                problems, cpu_s = [str(error)], 0.0
            return TaskCheck(instance_id=task.instance_id, problems=tuple(problems), runs=runs, cpu_s=cpu_s)

        yield check


async def check_tasks(
    tasks: Sequence[RepoTask], check: Check, *, on_result: Callable[[dict[str, Any], int], None]
) -> list[TaskCheck]:
    """Returns the checks of all tasks.

    Args:
        tasks: of one file.
        check: checks one, here or elsewhere.
        on_result: called with each result and the number of tasks.
    """

    async def one(task: RepoTask) -> TaskCheck:
        try:
            task_check = await check(task)
        except EnvError as error:
            task_check = TaskCheck(instance_id=task.instance_id, problems=(str(error),), runs=0)
        on_result({"key": task.instance_id, "status": "holds" if task_check.ok else task_check.problems[0]}, len(tasks))
        return task_check

    return list(await asyncio.gather(*map(one, tasks)))


async def _find_problems(task: RepoTask, store: TaskStore, suites: Suites, *, runs: int) -> tuple[list[str], float]:
    base = await asyncio.to_thread(read_tree, store.base(task))
    hidden, site = store.hidden_tests(task), store.site(task)
    solution = changed_by(base, task.patch)
    accepted = accept(base, solution)
    problems = [f"the grader refuses {path}: {reason}" for path, reason in accepted.refused.items()]
    problems += [f"{text}, so it cannot be graded" for text in unprotected_tests(task, hidden)]
    if not task.fail_to_pass:
        problems.append("no test fails before the change")
    trees = {
        "base": with_changes(base, dict(hidden)),
        "solution": with_changes(base, {**accepted.files, **hidden}),
    }
    cpu_s = 0.0
    for name, tree in trees.items():
        for number in range(1, runs + 1):
            run = await suites.run(tree, site=site, targets=task.targets, runner=task.runner)
            cpu_s += run.cpu_s
            if not run.ended and name == "solution":
                problems.append(f"{name}, run {number}: the tests do not end")
            wrong = wrong_tests(run, f2p=task.fail_to_pass, p2p=task.pass_to_pass, is_fixed=name == "solution")
            if wrong:
                examples = ", ".join(f"{test} is {outcome}" for test, outcome in list(wrong.items())[:3])
                problems.append(f"{name}, run {number}: {len(wrong)} tests are wrong: {examples}")
    return problems, cpu_s
