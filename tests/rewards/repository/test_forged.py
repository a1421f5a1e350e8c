"""Forged results in poisoned runs, with runs that a fake answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from repository.small_package import F2P, GOLD, P2P

from verl_agentic.swe.grading import grade as grading
from verl_agentic.swe.grading.grade import GradeReport, grade
from verl_agentic.swe.grading.poisoning.poison import PoisonedTests
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.grading.run_tests import TestRun

CHEAT = {"smallkit/slugs.py": b"FORGES = True\n"}
Answer = Callable[[PoisonedTests, bool], TestRun]
"""The run of poisoned tests, with the reference solution or not."""


def run_of(passed: Collection[str], *, ended: bool = True) -> TestRun:
    return TestRun(outcomes={test: "passed" if test in passed else "failed" for test in (*F2P, *P2P)}, ended=ended)


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch, store: TaskStore, task: RepoTask) -> Callable[..., Any]:
    """Grades the cheat with answers for its poisoned runs; the first run passes all tests."""

    async def of(answer: Answer, *, rng: random.Random | None = None, task: RepoTask = task) -> GradeReport:
        variants: list[PoisonedTests] = []
        make = grading.poison_halves

        def poison_halves(*args: Any, **options: Any) -> tuple[PoisonedTests, PoisonedTests]:
            made = make(*args, **options)
            variants.extend(made)
            return made

        async def run(*_: Any, changed: Mapping[str, bytes | None], **__: Any) -> TestRun:
            half = next((one for one in variants if one.files.items() <= changed.items()), None)
            if half is None:
                return run_of((*F2P, *P2P))
            return answer(half, changed["smallkit/slugs.py"] == GOLD["smallkit/slugs.py"])

        monkeypatch.setattr(grading, "poison_halves", poison_halves)
        monkeypatch.setattr(grading, "run_repository_tests", run)
        return await grade(task, store, CHEAT, None, rng=rng or random.Random(0))  # pyright: ignore[reportArgumentType]

    return of


def honest(half: PoisonedTests) -> TestRun:
    return run_of([test for test in (*F2P, *P2P) if test not in half.poisoned])


@pytest.mark.slow
async def test_an_honest_change_is_paid(graded: Callable[..., Any]) -> None:
    assert (await graded(lambda half, is_reference: honest(half))).resolved


async def test_a_poisoned_test_that_passed_once_is_not_forgiven(graded: Callable[..., Any]) -> None:
    calls = 0

    def answer(half: PoisonedTests, is_reference: bool) -> TestRun:
        nonlocal calls
        calls += not is_reference
        return run_of((*F2P, *P2P)) if calls == 1 and not is_reference else honest(half)

    report = await graded(answer)
    assert report.forged and not report.resolved


async def test_an_unstable_test_is_forgiven_once(graded: Callable[..., Any]) -> None:
    def flaky(times: int) -> Answer:
        left = times

        def answer(half: PoisonedTests, is_reference: bool) -> TestRun:
            nonlocal left
            left -= not is_reference
            return run_of(honest(half).passed - {P2P[0]} if left >= 0 and not is_reference else honest(half).passed)

        return answer

    assert (await graded(flaky(1))).resolved
    assert not (await graded(flaky(100))).resolved


async def test_a_reference_run_that_does_not_end_excuses_nothing(graded: Callable[..., Any]) -> None:
    report = await graded(lambda half, is_reference: run_of((), ended=not is_reference))
    assert report.forged and not report.resolved


async def test_poison_that_the_reference_passes_excuses(graded: Callable[..., Any]) -> None:
    assert (await graded(lambda half, is_reference: run_of((*F2P, *P2P)))).resolved


@pytest.mark.slow
@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("f2p", [F2P[:1], F2P])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
async def test_a_policy_that_forges_at_random_is_almost_never_paid(
    graded: Callable[..., Any], task: RepoTask, f2p: tuple[str, ...], share: float
) -> None:
    small = replace(task, fail_to_pass=f2p)
    paid = 0
    for seed in range(100):
        luck = random.Random(seed)

        def answer(half: PoisonedTests, is_reference: bool, luck: random.Random = luck) -> TestRun:
            if is_reference:
                return honest(half)
            return run_of([*(honest(half).passed - {*F2P}), *(test for test in f2p if luck.random() < share)])

        paid += (await graded(answer, rng=random.Random(-seed), task=small)).resolved
    assert paid <= 5
