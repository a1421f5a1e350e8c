"""Mines packages: downloads releases, installs their requirements, and compares consecutive ones."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.swe.make_task import Origin
from verl_agentic.swe.releases.file_kinds import source_root, test_targets, tests_of
from verl_agentic.swe.releases.mine_release import VALID, mine_release
from verl_agentic.swe.releases.package_names import normal_name
from verl_agentic.swe.releases.pip import PipIndex
from verl_agentic.swe.releases.requirements import install_site, requirements_of, top_modules
from verl_agentic.swe.releases.sdist import Release, read_release
from verl_agentic.swe.suite import Suites
from verl_agentic.swe.task_journal import TaskJournal

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MineOptions:
    """Options of mining."""

    packages: Sequence[str]
    releases: int = 6
    """Number of newest releases of each package; one fewer pairs."""
    requires: Sequence[str] = ()
    """Further requirements of the tests."""
    index: PipIndex = field(default_factory=PipIndex)
    site: Path | None = None
    """A folder of installed packages to use instead of installing requirements."""
    backend: str = "auto"
    """Sandbox backend that pip runs in."""


class Releases:
    """Releases and installed requirements of packages, kept in the folder of a journal's store."""

    def __init__(self, journal: TaskJournal, options: MineOptions) -> None:
        """Takes the journal, and where packages and requirements come from."""
        self._journal, self._index, self._options = journal, options.index, options
        self._folder = journal.store.folder / "sdists"
        self.lock = asyncio.Lock()
        """Held by the one who downloads and installs."""

    def versions(self, package: str, *, count: int) -> list[str]:
        """Returns the newest versions, oldest first. Raises DataError if the index has none."""
        return self._index.versions(package)[:count][::-1]

    def release(self, package: str, version: str) -> Release:
        """Downloads a release once and returns it. Raises DataError if that fails."""
        name = normal_name(package)
        archive = self._index.download_sdist(package, version, into=self._folder / name / version)
        return read_release(archive, name=name, version=version)

    def site(self, release: Release) -> str:
        """Installs the requirements of a release's tests once; returns the site's key.

        Requirements that name no package (a URL, a path, an option of pip) are dropped, logged and kept in the journal.

        Raises:
            DataError: a requirement has no wheel, or pytest needs the package itself.
            SandboxError: the sandbox of pip failed.
        """
        requirements = requirements_of(release.files, extra=self._options.requires)
        if requirements.dropped:
            _logger.warning("%s: dropped, as they name no package: %s", release.archive, requirements.dropped)
        without = sorted(top_modules(release.files, root=source_root(release.files)))
        names = sorted([*requirements.needed, *requirements.optional])
        key = f"site {self._options.site or ''} {' '.join(names)} without {' '.join(without)}"
        record = self._journal.result(key)
        if record is not None and (self._journal.store.folder / "sites" / record["site"]).is_dir():
            return record["site"]
        site = install_site(
            self._journal.store,
            self._index,
            requirements,
            without=without,
            backend=self._options.backend,
            source=self._options.site,
        )
        self._journal.add(key, "installed", site=site.key, missing=site.missing, dropped=site.dropped)
        return site.key


async def mine_packages(
    options: MineOptions, journal: TaskJournal, suites: Suites, *, on_result: Callable[[dict[str, Any], int], None]
) -> list[dict[str, Any]]:
    """Mines all pairs of consecutive releases that the journal does not have yet; returns the results of all.

    A package or release that cannot be used is a result with its reason, not an error.

    Args:
        options: packages and number of releases.
        journal: takes results and tasks.
        suites: runs tests.
        on_result: called with each result and the number of pairs known so far.
    """
    releases = Releases(journal, options)
    results: list[dict[str, Any]] = []
    total = 0

    async def mine_package(package: str) -> None:
        nonlocal total
        try:
            versions = await asyncio.to_thread(releases.versions, package, count=options.releases)
        except DataError as error:
            results.append({"key": f"mine {package}", "status": "no releases", "why": str(error), "tasks": []})
            on_result(results[-1], total)
            return
        pairs = list(itertools.pairwise(versions))
        total += len(pairs)
        await asyncio.gather(*(mine_pair(package, *pair) for pair in pairs))

    async def mine_pair(package: str, old: str, new: str) -> None:
        key = " ".join(["mine", normal_name(package), old, new, *options.requires])
        result = journal.result(key)
        if result is None:
            result = await _mine_pair(releases, package, old, new, journal=journal, suites=suites, key=key)
        results.append(result)
        on_result(result, total)

    await asyncio.gather(*(mine_package(package) for package in options.packages))
    return results


async def _mine_pair(
    releases: Releases, package: str, old: str, new: str, *, journal: TaskJournal, suites: Suites, key: str
) -> dict[str, Any]:
    try:
        async with releases.lock:
            before, after = await asyncio.to_thread(
                lambda: [releases.release(package, version) for version in (old, new)]
            )
            site = await asyncio.to_thread(releases.site, after)
        mined = await mine_release(
            before, after, site=site, source_root=source_root(after.files), store=journal.store, suites=suites
        )
    except DataError as error:
        # Not in the journal, because the cause may be the network or a missing requirement.
        return {"key": key, "status": "not usable", "why": str(error), "tasks": []}
    tasks = [mined.task] if mined.task is not None and mined.status == VALID else []
    return journal.add(key, mined.status, tasks, **mined.figures)


def origin_of(release: Release, *, site: str) -> tuple[dict[str, bytes], dict[str, bytes], Origin]:
    """Returns (files without tests, tests, origin) of a release. Raises DataError if it has no tests."""
    hidden = tests_of(release.files)
    targets = test_targets(hidden)
    if not targets:
        raise DataError(f"the release has no tests, got {release.archive}; use another release")
    files = {path: content for path, content in release.files.items() if path not in hidden}
    origin = Origin(
        package=release.name, version=release.version, archive=release.archive, sha256=release.sha256, site=site,
        targets=targets, source_root=source_root(release.files),
    )  # fmt: skip
    return files, hidden, origin
