"""Runs of a repository's tests in sandboxes, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.swe.grading.report_runs import run_reported_tests
from verl_agentic.swe.grading.run_tests import LIMITS, TestRun, run_repository_tests
from verl_agentic.swe.grading.runners.registry import REPORT_RUNNERS, toolchain_options

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
        runner: str = "pytest",
    ) -> TestRun:
        """Runs all tests of the targets.

        Args:
            tree: the repository with its tests.
            site: folder of installed test requirements.
            targets: files of tests; missing ones are left out.
            normal_cpu_s: CPU time of the same suite on a good tree. A run that takes 5 times as long is ended.
            runner: `RepoTask.runner`.
        """
        limits = LIMITS
        if normal_cpu_s is not None:
            limits = replace(limits, cpu_s=min(limits.cpu_s, max(_MIN_CPU_S, int(_CPU_FACTOR * normal_cpu_s) + 1)))
        async with self._seats:
            if runner in REPORT_RUNNERS:
                reported = REPORT_RUNNERS[runner]
                run = await run_reported_tests(self._backend, reported, tree=tree, targets=targets, limits=limits)
            else:
                present = [path for path in targets if path in tree]
                run = await run_repository_tests(self._backend, tree=tree, site=site, targets=present, limits=limits)
        self.cpu_s += run.cpu_s
        self.num_runs += 1
        return run


@asynccontextmanager
async def suites(*, jobs: int, backend: str = "auto", runners: Iterable[str] = ()) -> AsyncIterator[Suites]:
    """Starts a sandbox backend for test suites and closes it.

    Args:
        jobs: number of suites that run at one time.
        backend: of the sandboxes.
        runners: whose toolchains the sandboxes need.

    Raises:
        SandboxError: no backend works here.
    """
    options = toolchain_options(backend, runners)
    if backend == "auto":
        options["namespaces"] = {**options.get("namespaces", {}), **_DISK}
    elif backend == "namespaces":
        options |= _DISK
    sandbox_backend = make_backend(backend, **options)
    await sandbox_backend.start()
    try:
        yield Suites(sandbox_backend, jobs=jobs)
    finally:
        await sandbox_backend.close()
