"""Jobs that run a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from verl_agentic.episode.run_each import run_each


async def test_results_are_in_the_order_of_jobs_and_no_more_run_at_one_time_than_allowed() -> None:
    running: set[int] = set()
    seen: list[int] = []

    async def run(job: int) -> int:
        running.add(job)
        seen.append(len(running))
        for _ in range(20 - job):  # later jobs end first
            await asyncio.sleep(0)
        running.remove(job)
        return job**2

    assert await run_each(range(20), run, max_concurrent=3) == [job**2 for job in range(20)]
    assert max(seen) == 3
    assert await run_each([], run, max_concurrent=3) == []


async def test_an_error_ends_the_other_jobs_before_it_is_raised() -> None:
    ended: list[int] = []

    async def run(job: int) -> None:
        if job == 1:
            raise ValueError("job 1")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job)

    with pytest.raises(ValueError, match="job 1"):
        await run_each([0, 1, 2, 3], run, max_concurrent=3)
    assert ended == [0, 2], "job 3 never began"
