"""Cheats: naive graders pay for them, ours does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from repository.cheats import KNOWN, Cheat
from repository.more_cheats import CHEATS
from repository.naive import play
from repository.small_package import BASE, GOLD

from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading.accepted import changes
from verl_agentic.swe.grading.grade import grade
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore


def test_there_are_at_least_12_cheats_beyond_the_study() -> None:
    assert len(KNOWN) == 22
    assert len(CHEATS) >= 22 + 12


@pytest.mark.sample(8, slow=16)
@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
async def test_a_cheat_is_paid_by_the_naive_graders_that_it_names_and_not_by_ours(
    name: str, backend: Backend, store: TaskStore, task: RepoTask, site: Path
) -> None:
    final = await play(backend, site, CHEATS[name])
    report = await grade(task, store, changes(BASE, final.files), backend, skipped=final.skipped, test_s=10.0)
    assert final.paid_by == CHEATS[name].beats
    assert not report.resolved
    assert report.info()["f2p_passed"] < len(report.f2p)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("change", ["fix", "nothing"])
async def test_all_graders_pay_for_the_fix_and_none_for_nothing(
    change: str, backend: Backend, store: TaskStore, task: RepoTask, site: Path
) -> None:
    written = {path: content.decode() for path, content in GOLD.items() if content} if change == "fix" else {}
    final = await play(backend, site, Cheat(write=written, stopped_by=""))
    report = await grade(task, store, changes(BASE, final.files), backend)
    assert final.paid_by == (frozenset({"exit", "log", "diff"}) if change == "fix" else frozenset())
    assert report.resolved == (change == "fix")
    assert not report.forged and not report.refused
