"""Bugs: one file of a good tree in a broken form, and the task that it makes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.run_tests import TestRun
from verl_agentic.swe.grading.tree_diffs import apply_diff, count_changed
from verl_agentic.swe.make_task import Origin, make_task, with_changes
from verl_agentic.swe.outcomes import Comparison, compare
from verl_agentic.swe.releases.file_kinds import kind_of
from verl_agentic.swe.releases.mine_release import RUNS_AFTER, VALID, Mined, no_suite
from verl_agentic.swe.releases.statements import failing_example, unfair
from verl_agentic.swe.suite import Suites
from verl_agentic.swe.test_functions import without_tests

MAX_BROKEN = 0.9
"""Share of the passing tests above which a bug is too crude: it breaks the import."""


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One file in a broken form."""

    path: str
    broken: str
    """Text of the file with the bug."""
    name: str
    """What is broken, for people: an operator and a line, or a function."""
    unit: str
    """Qualified name of the function that has the bug; empty for module level."""

    def key(self, prefix: str) -> str:
        """Returns the key of the bug in a journal."""
        digest = hashlib.sha256(self.broken.encode(errors="surrogateescape")).hexdigest()[:12]
        return f"{prefix} {self.path} {self.name} {digest}"


@dataclass(frozen=True, kw_only=True)
class GoodTree:
    """A tree whose tests pass, with the tests that always pass in it."""

    origin: Origin
    files: Mapping[str, bytes]
    """Sources and all other files, without the hidden tests."""
    hidden: Mapping[str, bytes]
    runs: Sequence[TestRun]
    site: Path
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Provenance of all tasks of this tree."""

    @property
    def sources(self) -> dict[str, str]:
        """Path -> text of the Python sources."""
        python_files = {path: content for path, content in self.files.items() if path.endswith(".py")}
        return {
            path: text
            for path, content in python_files.items()
            if kind_of(path) == "source" and (text := _decode_text(content))
        }


async def good_tree(
    files: Mapping[str, bytes], hidden: Mapping[str, bytes], origin: Origin, *, store: TaskStore, suites: Suites
) -> GoodTree:
    """Runs the tests of a good tree 3 times and returns it.

    Raises:
        DataError: no test passes, or the tests do not end.
    """
    site = store.folder / "sites" / origin.site
    tree = {**files, **hidden}
    runs = [await suites.run(tree, site=site, targets=origin.targets) for _ in range(RUNS_AFTER)]
    if problem := no_suite(runs[0]):
        why = str(dict(list(runs[0].why.items())[:2]))[:300]
        raise DataError(f"{origin.package} {origin.version} is no good tree, got: {problem} {why}; use another release")
    return GoodTree(origin=origin, files=files, hidden=hidden, runs=runs, site=site)


def tree_of_task(task: RepoTask, store: TaskStore) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Returns (files with the reference solution, hidden tests) of a task. Raises DataError if they are missing."""
    return apply_diff(read_tree(store.base(task)), task.patch), dict(store.hidden_tests(task))


async def try_bug(good: GoodTree, bug: Bug, *, kind: str, store: TaskStore, suites: Suites) -> Mined:
    """Runs the tests with a bug; returns the task if it breaks at least one and at most 90 % of the passing tests.

    The visible tests of the task are the hidden ones without the functions that fail. The statement is an example of a
    failing test.
    """
    broken = {**good.files, bug.path: bug.broken.encode(errors="surrogateescape")}
    run = await suites.run(
        {**broken, **good.hidden}, site=good.site, targets=good.origin.targets, normal_cpu_s=good.runs[0].cpu_s
    )
    comparison = _compare_runs(good, run)
    figures: dict[str, Any] = {"f2p": len(comparison.f2p), "p2p": len(comparison.p2p)}
    if not run.ended and not run.outcomes:
        return Mined(status="hangs or crashes", figures=figures)
    if not comparison.f2p:
        return Mined(status="no test fails", figures=figures)
    if len(comparison.f2p) > MAX_BROKEN * (len(comparison.f2p) + len(comparison.p2p)):
        return Mined(status="nearly all tests fail", figures=figures)
    task = _store_task(good, bug, run, comparison, broken, kind=kind, store=store)
    return Mined(status=VALID, task=task, figures={**figures, "lines": count_changed(task.patch)})


def _compare_runs(good: GoodTree, run: TestRun) -> Comparison:
    """Compares with all good runs. Tests that the bug keeps from running have failed."""
    full = compare([run], good.runs)
    if run.ended:
        return full
    lost = tuple(sorted({*full.f2p, *full.p2p} - {test for test in full.p2p if run.outcomes.get(test) == "passed"}))
    return replace(full, f2p=lost, p2p=tuple(test for test in full.p2p if test not in set(lost)))


def _store_task(
    good: GoodTree, bug: Bug, run: TestRun, comparison: Comparison, broken: Mapping[str, bytes], *, kind: str,
    store: TaskStore,
) -> RepoTask:  # fmt: skip
    statement = failing_example(comparison.f2p, good.hidden, run.why)
    fixed = good.files[bug.path]
    flags = unfair(
        comparison, statement, old={bug.path: bug.broken}, new={bug.path: _decode_text(fixed)}, tests=good.hidden
    )
    visible = without_tests(good.hidden, comparison.f2p)
    base = with_changes({path: content for path, content in broken.items() if path not in good.hidden}, visible)
    return make_task(
        store, good.origin, kind=kind, suffix=f"-{kind[0]}{bug.key(kind).rpartition(' ')[2]}", base=base,
        solution={bug.path: fixed}, hidden=good.hidden, comparison=comparison, after=good.runs[0], statement=statement,
        flags=flags, provenance={**good.notes, "file": bug.path, "unit": bug.unit, "bug": bug.name},
    )  # fmt: skip


def _decode_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""
