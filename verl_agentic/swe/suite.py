"""Runs of a repository's tests in sandboxes, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.swe.grading.run_tests import LIMITS, TestRun, run_repository_tests

_MIN_CPU_S = 5
_CPU_FACTOR = 5
_DISK = {"disk_mb": 256}


class Suites:
    """Runs test suites in fresh sandboxes and adds up their CPU time."""

    def __init__(self, backend: Backend, *, jobs: int) -> None:
        """Takes a started backend; runs at most `jobs` suites at one time."""
        self._backend = backend
        self._seats = asyncio.Semaphore(jobs)
        self.cpu_s = 0.0
        self.num_runs = 0

    async def run(
        self,
        tree: Mapping[str, bytes],
        *,
        site: Path | None,
        targets: tuple[str, ...],
        normal_cpu_s: float | None = None,
    ) -> TestRun:
        """Runs all tests of the targets.

        Args:
            tree: the repository with its tests.
            site: folder of installed test requirements.
            targets: files of tests; missing ones are left out.
            normal_cpu_s: CPU time of the same suite on a good tree. A run that takes 5 times as long is ended.
        """
        limits = LIMITS
        if normal_cpu_s is not None:
            limits = replace(limits, cpu_s=min(limits.cpu_s, max(_MIN_CPU_S, int(_CPU_FACTOR * normal_cpu_s) + 1)))
        present = [path for path in targets if path in tree]
        async with self._seats:
            run = await run_repository_tests(self._backend, tree=tree, site=site, targets=present, limits=limits)
        self.cpu_s += run.cpu_s
        self.num_runs += 1
        return run


@asynccontextmanager
async def suites(*, jobs: int, backend: str = "auto") -> AsyncIterator[Suites]:
    """Starts a sandbox backend for test suites and closes it. Raises SandboxError if none works here."""
    options: dict[str, dict[str, Any]] = {"auto": {"namespaces": _DISK}, "namespaces": _DISK}
    sandbox_backend = make_backend(backend, **options.get(backend, {}))
    await sandbox_backend.start()
    try:
        yield Suites(sandbox_backend, jobs=jobs)
    finally:
        await sandbox_backend.close()
