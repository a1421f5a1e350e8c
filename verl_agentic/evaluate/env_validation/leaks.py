"""Leaks of closed environments: processes, descriptors, tasks, threads, files, sandboxes.

A pool or a cache may outlive an episode, so only counts that grow with every episode are leaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from verl_agentic.sandbox.pools.process_pool import open_pools

Counts = Mapping[str, int]
_SETTLE_S = 5.0
_POLL_S = 0.05


async def find_leftovers(burst: Callable[[], Awaitable[object]], *, episodes: int) -> dict[str, tuple[int, int]]:
    """Returns the counts that grew by at least `episodes` in each of two bursts: kind -> growth in the first and
    second.

    Args:
        burst: runs and closes environments, at least `episodes` for each way to end.
        episodes: minimum growth per burst if one way to end leaks once per episode.
    """
    await burst()  # fills pools and caches
    gc.collect()  # otherwise old garbage that is freed now would hide a leak
    with tempfile.TemporaryDirectory() as folder:
        async with _redirect_temporary_files(folder):
            before = await _count_resources(folder)
            first = await _measure_growth(burst, before, folder, episodes)
            if not any(value >= episodes for value in first.values()):
                return {}
            second = await _measure_growth(burst, await _count_resources(folder), folder, episodes)
    return {kind: (first[kind], second[kind]) for kind in first if min(first[kind], second[kind]) >= episodes}


async def _measure_growth(
    burst: Callable[[], Awaitable[object]], before: Counts, folder: str, bound: int
) -> dict[str, int]:
    """Returns the growth of each count, once it is stable."""
    await burst()
    deadline = asyncio.get_running_loop().time() + _SETTLE_S
    while True:
        after = await _count_resources(folder)
        growth = {kind: after[kind] - before[kind] for kind in before}
        if all(value < bound for value in growth.values()) or asyncio.get_running_loop().time() > deadline:
            return growth
        gc.collect()  # objects that only garbage holds are not leaks
        await asyncio.sleep(_POLL_S)


async def _count_resources(folder: str) -> dict[str, int]:
    pools = [await pool.metrics() for pool in open_pools()]
    tasks = len(asyncio.all_tasks())
    in_use = int(sum(metrics["running"] for metrics in pools))
    return {**_count_here(folder), "asyncio tasks": tasks, "sandboxes in use": in_use}


def _count_here(folder: str) -> dict[str, int]:
    import psutil

    process = psutil.Process()
    return {
        "child processes": len(process.children(recursive=True)),
        "open descriptors": process.num_fds(),
        "threads": threading.active_count(),
        "temporary files": sum(1 for _ in Path(folder).rglob("*")),
    }


@contextlib.asynccontextmanager
async def _redirect_temporary_files(folder: str) -> AsyncIterator[None]:
    """Gives the block its own folder for temporary files."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable
