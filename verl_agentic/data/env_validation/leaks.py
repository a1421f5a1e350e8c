"""What environments leave behind when they are closed: processes, descriptors, tasks, threads, files, sandboxes.

A pool or a cache may rightly outlive an episode, so not what is there counts, but what grows with every episode.
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

from verl_agentic.sandbox.process_pool import open_pools

Counts = Mapping[str, int]
_SETTLE_S = 5.0
_POLL_S = 0.05


async def find_leftovers(burst: Callable[[], Awaitable[object]], *, episodes: int) -> dict[str, tuple[int, int]]:
    """Returns what has grown by at least `episodes` in each of two bursts: kind -> growth in the first, in the second.

    Args:
        burst: plays environments that are all closed when it returns, in at least `episodes` of each way to end.
        episodes: an environment that leaves one thing behind in one of these ways leaves this many in a burst.
    """
    await burst()  # fills pools and caches
    gc.collect()  # or garbage from before that goes meanwhile hides what is left behind
    with tempfile.TemporaryDirectory() as folder:
        async with _temporary_files_in(folder):
            before = await _count(folder)
            first = await _growth(burst, before, folder, episodes)
            if not any(value >= episodes for value in first.values()):
                return {}
            second = await _growth(burst, await _count(folder), folder, episodes)
    return {kind: (first[kind], second[kind]) for kind in first if min(first[kind], second[kind]) >= episodes}


async def _growth(burst: Callable[[], Awaitable[object]], before: Counts, folder: str, bound: int) -> dict[str, int]:
    """Returns by how much each count has grown when it has come to rest."""
    await burst()
    deadline = asyncio.get_running_loop().time() + _SETTLE_S
    while True:
        after = await _count(folder)
        growth = {kind: after[kind] - before[kind] for kind in before}
        if all(value < bound for value in growth.values()) or asyncio.get_running_loop().time() > deadline:
            return growth
        gc.collect()  # what only garbage holds is not left behind
        await asyncio.sleep(_POLL_S)


async def _count(folder: str) -> dict[str, int]:
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
async def _temporary_files_in(folder: str) -> AsyncIterator[None]:
    """Has the block's temporary files made in a folder of their own, where nobody else's are."""
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
