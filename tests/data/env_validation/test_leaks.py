"""Leftovers, without an environment: what grows, what is there once, and where temporary files are made."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from verl_agentic.evaluate.env_validation import leaks
from verl_agentic.evaluate.env_validation.leaks import find_leftovers


@pytest.fixture(autouse=True)
def _is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_SETTLE_S", 0.2)


async def test_what_is_made_once_is_no_leftover_and_lies_where_it_stays() -> None:
    kept: list[Path] = []

    async def burst() -> None:
        if not kept:
            kept.append(Path(tempfile.mkdtemp()))
            for number in range(9):
                (kept[0] / str(number)).touch()

    before = (tempfile.tempdir, os.environ.get("TMPDIR"))
    assert await find_leftovers(burst, episodes=2) == {}
    assert kept[0].is_dir(), "a cache must outlive the look for leftovers"
    assert (tempfile.tempdir, os.environ.get("TMPDIR")) == before
    for path in [*kept[0].iterdir()]:
        path.unlink()
    kept[0].rmdir()


async def test_growth_is_told_for_both_bursts_and_less_than_one_per_episode_is_none() -> None:
    opened: list[int] = []

    async def burst(count: int = 3) -> None:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(count))

    try:
        assert await find_leftovers(burst, episodes=3) == {"open descriptors": (3, 3)}
        assert await find_leftovers(burst, episodes=4) == {}
    finally:
        for descriptor in opened:
            os.close(descriptor)


async def test_what_goes_a_moment_later_is_no_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr(leaks, "_SETTLE_S", 5.0)
    tasks: list[asyncio.Task[None]] = []

    async def burst() -> None:
        tasks.extend(asyncio.create_task(asyncio.sleep(0.2)) for _ in range(5))

    assert await find_leftovers(burst, episodes=2) == {}
    await asyncio.gather(*tasks)
