"""Makes small tasks from good trees: parts of a fix, mutations, and two bugs at once."""

from __future__ import annotations

import asyncio
import difflib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from verl_agentic.base.errors import DataError
from verl_agentic.swe.bugs.bug import Bug, GoodTree, good_tree, tree_of_task, try_bug
from verl_agentic.swe.bugs.hunks import hunk_bugs
from verl_agentic.swe.bugs.mutations import choose_bugs
from verl_agentic.swe.grading.repo_task import RepoTask, read_tree
from verl_agentic.swe.make_task import Origin
from verl_agentic.swe.suite import Suites
from verl_agentic.swe.task_journal import TaskJournal

OnResult = Callable[[dict[str, Any], int], None]


async def split_tasks(
    tasks: Sequence[RepoTask], journal: TaskJournal, suites: Suites, *, on_result: OnResult
) -> list[dict[str, Any]]:
    """Splits the fixes of release tasks into parts of one function each; returns the results."""
    results: list[dict[str, Any]] = []
    for task in tasks:
        files, hidden = await asyncio.to_thread(tree_of_task, task, journal.store)
        old = await asyncio.to_thread(read_tree, journal.store.base(task))
        bugs = [
            bug
            for path in files
            if path.endswith(".py") and path in old and old[path] != files[path]
            for bug in hunk_bugs(path, old[path].decode(), files[path].decode())
        ]
        key = f"split {task.instance_id}"
        results += await _try_all(
            bugs, "hunk", key, (files, hidden, Origin.of(task)), journal, suites,
            on_result=on_result, num_results=len(results), notes={"task": task.instance_id},
        )  # fmt: skip
    return results


async def mutate_tree(
    files: dict[str, bytes],
    hidden: dict[str, bytes],
    origin: Origin,
    journal: TaskJournal,
    suites: Suites,
    *,
    count: int,
    seed: int,
    on_result: OnResult,
) -> list[dict[str, Any]]:
    """Tries up to `count` mutations of a good tree; returns the results."""
    sources = GoodTree(origin=origin, files=files, hidden=hidden, runs=(), site=journal.store.folder).sources
    bugs = choose_bugs(sources, count=count, seed=seed)
    if not bugs:
        raise DataError(f"no operator applies to {origin.package} {origin.version}, got {sorted(sources)[:5]}")
    key = f"mutate {origin.package}=={origin.version}"
    return await _try_all(bugs, "mutation", key, (files, hidden, origin), journal, suites, on_result=on_result)


async def combine_tasks(
    tasks: Sequence[RepoTask], journal: TaskJournal, suites: Suites, *, count: int, on_result: OnResult
) -> list[dict[str, Any]]:
    """Combines pairs of small tasks with bugs in different functions of one file; returns the results.

    Args:
        tasks: of the kinds hunk and mutation; others are ignored.
        journal: takes results and tasks.
        suites: runs tests.
        count: maximum number of combinations per release.
        on_result: called with each result and the number of results to come in all.
    """
    groups: dict[tuple[str, ...], list[RepoTask]] = {}
    for task in tasks:
        if task.kind in ("hunk", "mutation") and task.provenance.get("unit"):
            # `tests` and `site` tell good trees of one release apart.
            groups.setdefault((task.repo, task.version, task.tests, task.site), []).append(task)
    results: list[dict[str, Any]] = []
    for group in groups.values():
        files, hidden = await asyncio.to_thread(tree_of_task, group[0], journal.store)
        bugs = list(itertools.islice(_iter_combinations(group, files, journal), count))
        key = f"combine {group[0].repo.partition('/')[2]}=={group[0].version}"
        results += await _try_all(
            bugs, "combined", key, (files, hidden, Origin.of(group[0])), journal, suites,
            on_result=on_result, num_results=len(results),
        )  # fmt: skip
    return results


def combined(good: str, first: str, second: str) -> str | None:
    """Returns a text with the changes of two other texts; None if the changes touch the same lines."""
    lines = good.splitlines(keepends=True)
    edits = []
    for text in (first, second):
        other = text.splitlines(keepends=True)
        codes = difflib.SequenceMatcher(None, lines, other, autojunk=False).get_opcodes()
        edits += [(a, b, other[c:d]) for tag, a, b, c, d in codes if tag != "equal"]
    edits.sort(key=lambda edit: edit[:2])
    for (start, end, _), (following, _, _) in itertools.pairwise(edits):
        if following < end or following == start:
            return None
    for start, end, new in reversed(edits):
        lines[start:end] = new
    return "".join(lines)


def _iter_combinations(group: Sequence[RepoTask], files: dict[str, bytes], journal: TaskJournal) -> Iterator[Bug]:
    """Yields pairs that are near in the order of the file, each task at most once per round of distance."""
    ordered = sorted(group, key=lambda task: (task.provenance["file"], task.provenance["unit"], task.instance_id))
    broken = {task.instance_id: read_tree(journal.store.base(task)) for task in ordered}
    for distance in range(1, len(ordered)):
        for first, second in zip(ordered, ordered[distance:], strict=False):
            path = first.provenance["file"]
            if path != second.provenance["file"] or first.provenance["unit"] == second.provenance["unit"]:
                continue
            sides = [broken[task.instance_id][path].decode() for task in (first, second)]
            text = combined(files[path].decode(), *sides)
            if text is not None:
                name = f"{first.provenance['bug']} and {second.provenance['bug']}"
                yield Bug(
                    path=path, broken=text, name=name, unit=f"{first.provenance['unit']}, {second.provenance['unit']}"
                )


async def _try_all(
    bugs: Sequence[Bug],
    kind: Literal["hunk", "mutation", "combined"],
    key: str,
    tree: tuple[dict[str, bytes], dict[str, bytes], Origin],
    journal: TaskJournal,
    suites: Suites,
    *,
    on_result: OnResult,
    num_results: int = 0,
    notes: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Tries the bugs that the journal does not have; the good tree's tests run only if there is one."""
    total = num_results + len(bugs)
    missing = [bug for bug in bugs if journal.result(bug.key(key)) is None]
    if missing:
        files, hidden, origin = tree
        try:
            good = await good_tree(files, hidden, origin, store=journal.store, suites=suites)
        except DataError as error:
            result = {"key": key, "status": "not usable", "why": str(error), "tasks": []}
            on_result(result, total)
            return [result]
        good = GoodTree(origin=origin, files=files, hidden=hidden, runs=good.runs, site=good.site, notes=notes or {})

        async def try_one(bug: Bug) -> None:
            tried = await try_bug(good, bug, kind=kind, store=journal.store, suites=suites)
            new_tasks = [tried.task] if tried.task is not None else []
            result = journal.add(bug.key(key), tried.status, new_tasks, **tried.figures)
            on_result(result, total)

        await asyncio.gather(*map(try_one, missing))
    return [result for bug in bugs if (result := journal.result(bug.key(key))) is not None]
