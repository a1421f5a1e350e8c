"""Verdicts on changes of the small package."""

from __future__ import annotations

from dataclasses import replace

import pytest
from repository.small_package import F2P, GOLD, P2P, SLUG

from verl_agentic.base.errors import DataError
from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading.grade import grade
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore


async def test_the_fix_is_resolved(backend: Backend, store: TaskStore, task: RepoTask) -> None:
    report = await grade(task, store, GOLD, backend)
    assert report.resolved and not report.forged and report.ended
    assert report.info()["f2p_passed"] == len(F2P) and report.info()["p2p_passed"] == len(P2P)
    assert report.accepted == ("smallkit/slugs.py",)


async def test_half_a_fix_counts_half(backend: Backend, store: TaskStore, task: RepoTask) -> None:
    half = SLUG.replace("[:max_length]", "[:max_length] if max_length != 4 else name[:3]")
    report = await grade(task, store, {"smallkit/slugs.py": half.encode()}, backend)
    assert not report.resolved
    assert report.f2p == {F2P[0]: "passed", F2P[1]: "failed"}


@pytest.mark.slow
async def test_a_deleted_module_breaks_its_tests(backend: Backend, store: TaskStore, task: RepoTask) -> None:
    report = await grade(task, store, {"smallkit/units.py": None}, backend)
    assert set(report.f2p.values()) == set(report.p2p.values()) == {"missing"}


@pytest.mark.nightly
async def test_poison_that_the_reference_passes_too_is_no_evidence(
    backend: Backend, store: TaskStore, task: RepoTask
) -> None:
    loose = b"""
import pytest

class Loose:
    def __eq__(self, other): return True

def test_loose():
    from smallkit import words
    assert words("a") == ["a"]
    if words("a") != ["a"]: raise KeyError
    assert Loose() == 3
"""
    tests = {**store.hidden_tests(task), "tests/test_loose.py": loose}
    changed = replace(
        task, tests=store.add_tests(tests), pass_to_pass=(*task.pass_to_pass, "tests/test_loose.py::test_loose")
    )
    reports = [await grade(changed, store, GOLD, backend) for _ in range(3)]
    assert all(report.resolved for report in reports)


async def test_a_task_without_its_files_is_an_error(backend: Backend, store: TaskStore, task: RepoTask) -> None:
    with pytest.raises(DataError, match="smallkit-1"):
        await grade(replace(task, tests="0" * 64), store, GOLD, backend)
