"""Runs a function on many jobs, a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


async def run_each(
    jobs: Sequence[Job], run: Callable[[Job], Awaitable[Result]], *, max_concurrent: int
) -> list[Result]:
    """Returns the results of all jobs, in their order; an error of one ends the others before it is raised.

    Args:
        jobs: started in this order.
        max_concurrent: maximum number of jobs that run at one time.
    """
    waiting, results = deque(enumerate(jobs)), dict[int, Result]()

    async def work() -> None:
        while waiting:
            place, job = waiting.popleft()
            results[place] = await run(job)

    workers = [asyncio.ensure_future(work()) for _ in range(min(max_concurrent, len(waiting)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[place] for place in range(len(jobs))]
