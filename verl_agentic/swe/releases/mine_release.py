"""Tasks from two consecutive releases of a package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.grading.run_tests import TestRun
from verl_agentic.swe.grading.tree_diffs import count_changed
from verl_agentic.swe.make_task import Origin, make_task, with_changes
from verl_agentic.swe.outcomes import compare
from verl_agentic.swe.releases.file_kinds import kind_of, source_changes, test_targets, tests_of
from verl_agentic.swe.releases.sdist import Release
from verl_agentic.swe.releases.statements import release_statements, unfair
from verl_agentic.swe.suite import Suites
from verl_agentic.swe.test_functions import functions_in

RUNS_AFTER, RUNS_BEFORE = 3, 2
VALID = "valid"


@dataclass(frozen=True, kw_only=True)
class Mined:
    """The result for one pair of releases."""

    status: str
    """`valid`, or why there is no task."""
    task: RepoTask | None = None
    figures: Mapping[str, Any]
    """Numbers of tests, changed lines and seconds."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Trees made from two releases."""

    base: dict[str, bytes]
    """The old sources, tests and documents in the new configuration."""
    solution: dict[str, bytes | None]
    """The new sources."""
    hidden: dict[str, bytes]
    """The new tests."""
    texts: dict[str, tuple[str | None, str | None]]
    """Path -> (old, new) text of the changed sources."""


def make_pair(old: Release, new: Release) -> Pair:
    """Returns the trees of a task from two releases.

    The configuration and all files that are no sources, tests or documents are those of the new release in all trees.
    Sources that differ in version lines only are those of the new release too, and so are assignments of versions.
    """
    texts = source_changes(old.files, new.files)
    new_files = {path: content for path, content in new.files.items() if kind_of(path) not in ("test", "docs")}
    old_files = {path: content for path, content in old.files.items() if kind_of(path) in ("test", "docs")}
    undone = {path: None if before is None else before.encode() for path, (before, _) in texts.items()}
    return Pair(
        base=with_changes({**new_files, **old_files}, undone),
        solution={path: new.files.get(path) for path in texts},
        hidden=tests_of(new.files),
        texts=texts,
    )


async def mine_release(
    old: Release, new: Release, *, site: str, source_root: str, store: TaskStore, suites: Suites
) -> Mined:
    """Runs the new tests on both sources and returns the task.

    The tests run 3 times with the new sources and 2 times with the old ones. Tests that differ between runs are
    dropped and counted.

    Args:
        old, new: consecutive releases.
        site: key of the installed test requirements.
        source_root: folder of the modules.
        store: takes the task's files.
        suites: runs the tests.

    Raises:
        SandboxError: the sandbox failed.
    """
    pair = make_pair(old, new)
    targets = test_targets(pair.hidden)
    if not pair.texts:
        return Mined(status="no source change", figures={})
    if not targets:
        return Mined(status="no tests in the source distribution", figures={})
    folder = store.folder / "sites" / site
    origin = Origin(
        package=new.name, version=new.version, archive=new.archive, sha256=new.sha256, site=site, targets=targets,
        source_root=source_root,
    )  # fmt: skip
    fixed = with_changes(pair.base, {**pair.solution, **pair.hidden})
    broken = with_changes(pair.base, pair.hidden)
    after = [await suites.run(fixed, site=folder, targets=targets)]
    if problem := no_suite(after[0]):
        return Mined(status=problem, figures={"why": dict(list(after[0].why.items())[:3])})
    normal_s = after[0].cpu_s
    before = [await suites.run(broken, site=folder, targets=targets, normal_cpu_s=normal_s)]
    if not compare(before, after).f2p:
        return Mined(status="no test tells the releases apart", figures={"test_s": normal_s})
    after += [await suites.run(fixed, site=folder, targets=targets) for _ in range(RUNS_AFTER - 1)]
    before += [
        await suites.run(broken, site=folder, targets=targets, normal_cpu_s=normal_s) for _ in range(RUNS_BEFORE - 1)
    ]
    return _make_result(old, new, pair, origin, before, after, store=store)


def no_suite(run: TestRun) -> str | None:
    """Returns why a run of good sources is no test suite, or None if it is one."""
    if not run.ended:
        return "the tests do not end"
    if not run.passed:
        return "no test passes"
    return None


def _make_result(
    old: Release, new: Release, pair: Pair, origin: Origin, before: Sequence[TestRun], after: Sequence[TestRun], *,
    store: TaskStore,
) -> Mined:  # fmt: skip
    comparison = compare(before, after)
    figures: dict[str, Any] = {"flaky": len(comparison.flaky), "tests": len(after[0].outcomes)}
    if not comparison.f2p:
        return Mined(status="only flaky tests tell the releases apart", figures=figures)
    olds, news = ({path: sides[side] for path, sides in pair.texts.items()} for side in (0, 1))
    words = {name.split("::")[-1] for name in _changed_functions(olds, news)}
    statement, hints = release_statements(old.files, new.files, comparison, before[0].why, words=words)
    flags = unfair(comparison, statement, old=olds, new=news, tests=pair.hidden)
    task = make_task(
        store, origin, kind="release", base=pair.base, solution=pair.solution, hidden=pair.hidden,
        comparison=comparison, after=after[0], statement=statement, hints=hints, flags=flags,
        provenance={"from": f"{old.name}=={old.version}", "sha256": old.sha256, "flaky": list(comparison.flaky)},
    )  # fmt: skip
    figures |= {"f2p": len(comparison.f2p), "p2p": len(comparison.p2p), "lines": count_changed(task.patch)}
    if not task.patch:
        return Mined(status="no source change", figures=figures)
    return Mined(status=VALID, task=task, figures={**figures, "flags": sorted(flags), "test_s": task.test_s})


def _changed_functions(old: Mapping[str, str | None], new: Mapping[str, str | None]) -> set[str]:
    """Returns the names of functions whose lines differ, and of the changed modules."""
    names: set[str] = set()
    for path in new:
        names.add(path.rpartition("/")[2].removesuffix(".py"))
        sides = []
        for text in (old.get(path) or "", new.get(path) or ""):
            lines = text.splitlines()
            sides.append({name: lines[node.lineno - 1 : node.end_lineno] for name, node in functions_in(text).items()})
        names |= {name for name in sides[1] if sides[0].get(name) != sides[1][name]}
    return names
