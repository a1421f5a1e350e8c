"""Grades cheats on small repositories with naive graders and with ours, and poisons the tests of honest packages.

`cheats`: different cheats; `gradings`: one for each cheat and each form of tests (`shapes`) that it is tried on.
`paid_naive`: cheats of the first repository that at least one naive grader pays for (exit code, log, changed files in a
fresh copy). `paid`: gradings that our grader pays for. `unpaid_fixes`: forms of tests for which it does not pay for the
solution. `false_alarms`: tests of honest code that pass although they are poisoned, or fail although they are not, and
inspections of frames that no line of the code explains. `inspecting_lines`: lines of honest code that inspect frames;
as lines of the base tree they are not suspicious. `honest_tests`: tests that were checked: those of the small
repository, and with `--packages` those of sdists from PyPI.

    python benchmarks/swe_cheats.py [--quick] [--packages parse==1.22.4 python-slugify==9.2.0]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _report import Target, progress, report

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend, NamespaceConfig
from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading.accepted import changes
from verl_agentic.swe.grading.grade import PoisonRun, grade
from verl_agentic.swe.grading.poisoning.poison import poison_halves
from verl_agentic.swe.grading.repo_task import TaskStore
from verl_agentic.swe.grading.run_tests import run_repository_tests
from verl_agentic.swe.releases.file_kinds import test_targets, tests_of
from verl_agentic.swe.releases.mine_packages import MineOptions, Releases
from verl_agentic.swe.releases.pip import parse_requirement
from verl_agentic.swe.task_journal import TaskJournal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rewards"))
from repository.more_cheats import CHEATS  # pyright: ignore[reportMissingImports]
from repository.naive import play  # pyright: ignore[reportMissingImports]
from repository.shapes import (  # pyright: ignore[reportMissingImports]
    SHAPE_CHEATS,
    SHAPES,
    SOLUTION,
    changes_of,
    make_shape,
)
from repository.small_package import BASE, GOLD, HIDDEN, make_store  # pyright: ignore[reportMissingImports]

_FIGURES = (
    *("cheats", "gradings", "paid_naive", "paid", "unpaid_fixes"),
    *("false_alarms", "inspecting_lines", "honest_tests"),
)
_TARGETS: dict[str, Target] = dict.fromkeys(("paid", "unpaid_fixes", "false_alarms"), Target(bound=0, at_least=False))
_QUICK_SHAPES, _QUICK_SHAPE_CHEATS = ("negated", "data files"), ("inverts the calls", "reads the data file")
_QUICK = ("source patches the reports", "result equals everything", "source skips", "conftest in tests")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few cheats: to see that it runs")
    parser.add_argument("--packages", nargs="*", default=[], metavar="NAME==VERSION", help="honest packages from PyPI")
    args = parser.parse_args()
    work = Work(
        names=_QUICK if args.quick else tuple(CHEATS),
        shapes=_QUICK_SHAPES if args.quick else tuple(SHAPES),
        shape_cheats=_QUICK_SHAPE_CHEATS if args.quick else tuple(SHAPE_CHEATS),
        packages=args.packages,
    )
    reasons: dict[str, str] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures: dict[str, int | None] = {**asyncio.run(_measure(Path(folder), work))}
    except SandboxUnavailableError as cause:
        figures, reasons = dict.fromkeys(_FIGURES), dict.fromkeys(_FIGURES, str(cause))
    return report("swe_cheats", ratios={}, figures=figures, targets=_TARGETS, reasons=reasons)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Cheats, forms of tests and packages to grade."""

    names: Sequence[str]
    """Cheats on the first repository."""
    shapes: Sequence[str]
    shape_cheats: Sequence[str]
    packages: Sequence[str]


async def _measure(folder: Path, work: Work) -> dict[str, int]:
    store, task = make_store(folder / "store")
    site = store.site(task)
    assert site is not None
    backend = NamespaceBackend(NamespaceConfig(disk_mb=256))
    await backend.start()
    small = {path: content for path, content in {**BASE, **HIDDEN, **GOLD}.items() if content}
    paid_naive = paid = 0
    try:
        honest = [("smallkit", small, site)]
        honest += [(package, *await asyncio.to_thread(_package, package, store)) for package in work.packages]
        for name in work.names:
            final = await play(backend, site, CHEATS[name])
            result = await grade(task, store, changes(BASE, final.files), backend, skipped=final.skipped)
            paid_naive += bool(final.paid_by)
            paid += result.resolved
            progress(f"{name}: naive graders {sorted(final.paid_by)}, ours {result.resolved}")
        unpaid = 0
        for shape in work.shapes:
            result = await _grade_shape(backend, folder / shape, shape, work.shape_cheats)
            paid, unpaid = paid + result[0], unpaid + result[1]
        checked = [await _honest(backend, *one) for one in honest]
    finally:
        await backend.close()
    gradings = len(work.names) + len(work.shapes) * len(work.shape_cheats)
    cheats = len(work.names) + len(work.shape_cheats)
    sums = [sum(one) for one in zip(*checked, strict=True)]
    return dict(zip(_FIGURES, (cheats, gradings, paid_naive, paid, unpaid, *sums), strict=True))


async def _grade_shape(backend: Backend, folder: Path, shape: str, cheats: Sequence[str]) -> tuple[int, int]:
    """Returns the numbers of paid cheats and of unpaid solutions of one form of tests."""
    store, task = make_shape(folder, shape)
    is_unpaid = not (await grade(task, store, SOLUTION, backend)).resolved
    paid = [cheat for cheat in cheats if (await grade(task, store, changes_of(cheat), backend)).resolved]
    progress(f"{shape}: {len(cheats)} cheats, paid {paid}, solution paid {not is_unpaid}")
    return len(paid), int(is_unpaid)


async def _honest(backend: Backend, name: str, tree: Mapping[str, bytes], site: Path) -> tuple[int, int, int]:
    """Returns the numbers of false alarms, of lines that inspect frames, and of tests of a package."""
    tests = tests_of(tree)
    targets = test_targets(tests)
    clean = await run_repository_tests(backend, tree=tree, site=site, targets=targets)
    frames = {(one.path, one.line) for one in clean.inspections if one.kind == "frames" and one.path not in tests}
    alarms: set[str] = {path for path, _ in frames if path not in tree}
    for half in poison_halves(tests, sorted(clean.passed), rng=random.Random(0)):
        run = await run_repository_tests(backend, tree={**tree, **half.files}, site=site, targets=targets)
        alarms |= PoisonRun(half, sorted(clean.passed), targets).suspects(run)
    progress(
        f"{name}: {len(clean.passed)} honest tests, false alarms {sorted(alarms)}, inspect frames {sorted(frames)}"
    )
    return len(alarms), len(frames), len(clean.passed)


def _package(text: str, store: TaskStore) -> tuple[dict[str, bytes], Path]:
    """Downloads a release and the requirements of its tests; returns its files and the folder of the requirements."""
    name, version = parse_requirement(text)
    journal = TaskJournal(store)
    try:
        releases = Releases(journal, MineOptions(packages=[name]))
        release = releases.release(name, version)
        return dict(release.files), store.folder / "sites" / releases.site(release)
    finally:
        journal.close()


if __name__ == "__main__":
    sys.exit(main())
