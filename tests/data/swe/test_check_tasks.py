"""A task whose tests cannot pass with its solution does not hold, and its check names the test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest

from verl_agentic.swe import check_tasks
from verl_agentic.swe.grading.run_tests import TestRun
from verl_agentic.swe.sample_store import sample_store


@pytest.mark.parametrize("outcome", ["skipped", "failed", None])
async def test_a_test_that_the_solution_does_not_pass_is_named(outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sample_store()
    (task, *_) = store.tasks()
    kept = task.pass_to_pass[0]

    class Suites:
        async def run(self, tree: Any, **options: Any) -> TestRun:
            outcomes: dict[str, Any] = dict.fromkeys((*task.fail_to_pass, *task.pass_to_pass), "passed")
            outcomes.pop(kept) if outcome is None else outcomes.update({kept: outcome})
            return TestRun(outcomes=outcomes, ended=True)

    @asynccontextmanager
    async def suites(**options: Any) -> Any:
        yield Suites()

    monkeypatch.setattr(check_tasks, "suites", suites)
    async with check_tasks.task_checks(store.path, runs=1, jobs=1, backend="process") as check:
        found = await check(task)
    (problem,) = [text for text in found.problems if text.startswith("solution")]
    assert problem == f"solution, run 1: 1 tests are wrong: {kept} is {outcome or 'missing'}" and not found.ok
