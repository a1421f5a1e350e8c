"""Grades cheats on a small repository with naive graders and with ours, and poisons the tests of honest packages.

`paid_naive`: cheats that at least one naive grader pays for (exit code, log, changed files in a fresh copy).
`paid`: cheats that our grader pays for. `false_alarms`: tests of honest code that pass although they are poisoned, or
fail although they are not. `honest_tests`: tests that were checked for it: those of the small repository, and with
`--packages` those of sdists from PyPI.

    python benchmarks/swe_cheats.py [--quick] [--packages parse==1.22.4 python-slugify==9.2.0]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from _report import Target, progress, report

from verl_agentic.data.swe.releases.file_kinds import test_targets, tests_of
from verl_agentic.data.swe.releases.mine_packages import MineOptions, Releases
from verl_agentic.data.swe.releases.pip import parse_requirement
from verl_agentic.data.swe.task_journal import TaskJournal
from verl_agentic.errors import SandboxUnavailableError
from verl_agentic.rewards.repository.accepted import changes
from verl_agentic.rewards.repository.grade import grade
from verl_agentic.rewards.repository.poison import poison_halves
from verl_agentic.rewards.repository.repo_task import TaskStore
from verl_agentic.rewards.repository.run_tests import run_repository_tests
from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.namespaces_backend import NamespaceBackend, NamespaceConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rewards"))
from repository.more_cheats import CHEATS  # pyright: ignore[reportMissingImports]
from repository.naive import play  # pyright: ignore[reportMissingImports]
from repository.small_package import BASE, GOLD, HIDDEN, make_store  # pyright: ignore[reportMissingImports]

_FIGURES = ("cheats", "paid_naive", "paid", "false_alarms", "honest_tests")
_QUICK = ("source patches the reports", "result equals everything", "source skips", "conftest in tests")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four cheats: to see that it runs")
    parser.add_argument("--packages", nargs="*", default=[], metavar="NAME==VERSION", help="honest packages from PyPI")
    args = parser.parse_args()
    names = _QUICK if args.quick else tuple(CHEATS)
    reasons: dict[str, str] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures: dict[str, int | None] = {**asyncio.run(_measure(Path(folder), names, args.packages))}
    except SandboxUnavailableError as cause:
        figures, reasons = dict.fromkeys(_FIGURES), dict.fromkeys(_FIGURES, str(cause))
    targets = {"paid": Target(bound=0, at_least=False), "false_alarms": Target(bound=0, at_least=False)}
    return report("swe_cheats", ratios={}, figures=figures, targets=targets, reasons=reasons)


async def _measure(folder: Path, names: tuple[str, ...], packages: list[str]) -> dict[str, int]:
    store, task = make_store(folder / "store")
    site = store.site(task)
    assert site is not None
    backend = NamespaceBackend(NamespaceConfig(disk_mb=256))
    await backend.start()
    small = {path: content for path, content in {**BASE, **HIDDEN, **GOLD}.items() if content}
    paid_naive = paid = 0
    try:
        honest = [("smallkit", small, site)]
        honest += [(package, *await asyncio.to_thread(_package, package, store)) for package in packages]
        for name in names:
            final = await play(backend, site, CHEATS[name])
            result = await grade(task, store, changes(BASE, final.files), backend, skipped=final.skipped)
            paid_naive += bool(final.paid_by)
            paid += result.resolved
            progress(f"{name}: naive graders {sorted(final.paid_by)}, ours {result.resolved}")
        checked = [await _honest(backend, *one) for one in honest]
    finally:
        await backend.close()
    alarms, tests = (sum(one) for one in zip(*checked, strict=True))
    return dict(zip(_FIGURES, (len(names), paid_naive, paid, alarms, tests), strict=True))


async def _honest(backend: Backend, name: str, tree: Mapping[str, bytes], site: Path) -> tuple[int, int]:
    """Returns the number of false alarms and of tests of a package."""
    tests = tests_of(tree)
    targets = test_targets(tests)
    clean = await run_repository_tests(backend, tree=tree, site=site, targets=targets)
    alarms: set[str] = set()
    for half in poison_halves(tests, sorted(clean.passed), rng=random.Random(0)):
        run = await run_repository_tests(backend, tree={**tree, **half.files}, site=site, targets=targets)
        alarms |= {test for test in clean.passed if (test in run.passed) == (test in half.poisoned)}
    progress(f"{name}: {len(clean.passed)} honest tests, false alarms {sorted(alarms)}")
    return len(alarms), len(clean.passed)


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
