"""Deadlines hold whatever the work does, and what it does with its cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable

import pytest

from verl_agentic.deadlines import OverrunError, in_thread, within
from verl_agentic.errors import EnvError, boundary

WORK = contextvars.ContextVar("WORK", default="nobody's")


async def value(of: object, after_s: float = 0.0) -> object:
    await asyncio.sleep(after_s)
    return of


async def test_work_that_is_in_time_gives_its_result() -> None:
    assert await within(value(42), 1.0, what="work") == 42


async def test_what_the_work_raises_comes_out_unchanged() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        await within(fails(), 1.0, what="work")


@pytest.mark.parametrize("timeout_s", [0.05, 0.0, -3.0])
async def test_work_that_is_late_is_cancelled_and_said_to_be_late(timeout_s: float) -> None:
    ended = []

    async def late() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(OverrunError, match="the work was still running after"):
        await within(late(), timeout_s, what="the work")
    assert ended == [True]


async def test_work_that_ignores_its_cancellation_is_left_behind_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    began = time.monotonic()
    with pytest.raises(OverrunError):
        await within(stubborn(), 0.1, what="stubborn work")
    assert time.monotonic() - began < 5
    assert "stubborn work ignores its cancellation" in caplog.text
    release.set()
    await asyncio.sleep(0.01)


async def test_work_that_cleans_up_for_a_moment_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    cleaned = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    with pytest.raises(OverrunError):
        await within(tidy(), 0.001, what="tidy work")
    assert cleaned == [True] and not caplog.records


async def test_what_late_work_returns_or_raises_after_its_cancellation_is_dropped() -> None:
    async def defiant(error: BaseException | None) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if error is not None:
                raise error from None
        return "too late"

    for error in (None, OSError("while cleaning up")):
        with pytest.raises(OverrunError):
            await within(defiant(error), 0.01, what="work")


async def test_work_that_cancels_itself_has_failed() -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def raises_it() -> None:
        raise asyncio.CancelledError

    for work in (cancels_itself, raises_it):
        with pytest.raises(EnvError, match="got a cancellation of its own"):
            await within(work(), 1.0, what="work")


async def test_cancelling_the_waiter_ends_the_work_first() -> None:
    ended = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            ended.append(True)

    waiter = asyncio.create_task(within(tidy(), 60, what="work"))
    await asyncio.sleep(0.01)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert ended == [True]


async def test_deadlines_inside_deadlines_each_end_their_own_work() -> None:
    async def outer() -> str:
        try:
            await within(asyncio.sleep(60), 0.02, what="inner work")
        except OverrunError:
            return "the inner one was late"
        return "nobody was late"

    assert await within(outer(), 1.0, what="outer work") == "the inner one was late"


async def test_work_that_means_to_end_the_process_only_fails() -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="wanted to end the process, got SystemExit: 3"):
        await within(leaves(), 1.0, what="work")


def test_a_boundary_takes_an_attempt_to_end_the_process_for_a_failure() -> None:
    with pytest.raises(EnvError, match="making it failed, got SystemExit: 2"), boundary(EnvError, "making it"):
        sys.exit(2)
    with pytest.raises(KeyboardInterrupt), boundary(EnvError, "making it"):
        raise KeyboardInterrupt


async def test_many_deadlines_leave_no_task_behind() -> None:
    async def one(i: int) -> None:
        work: Awaitable[object] = value(i) if i % 2 else asyncio.sleep(60)
        try:
            await within(work, 0.05, what="work")
        except OverrunError:
            assert i % 2 == 0

    await asyncio.gather(*(one(i) for i in range(200)))
    assert asyncio.all_tasks() == {asyncio.current_task()}


# Threads.


async def test_a_blocking_function_runs_in_a_thread_and_gives_its_result() -> None:
    def work(a: int, *, b: int) -> tuple[int, bool]:
        return a + b, threading.current_thread() is threading.main_thread()

    assert await in_thread(work, 1, b=2) == (3, False)


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(1)])
async def test_what_a_thread_raises_comes_out(error: BaseException) -> None:
    def work() -> None:
        raise error

    async def guarded() -> None:
        with boundary(EnvError, "the thread"):
            await in_thread(work)

    with pytest.raises(EnvError, match=f"the thread failed, got {type(error).__name__}"):
        await guarded()


async def test_an_iterator_that_ends_in_a_thread_is_an_error_and_no_endless_wait() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await within(in_thread(next, iter(())), 2.0, what="work")


async def test_a_thread_knows_the_context_it_was_started_from() -> None:
    WORK.set("ours")
    assert await in_thread(WORK.get) == "ours"


async def test_threads_that_hang_hold_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    release = threading.Event()
    hung = [within(in_thread(release.wait), 0.1, what="a thread") for _ in range(3 * (os.cpu_count() or 1) + 40)]
    hanging = asyncio.gather(*hung, return_exceptions=True)
    await asyncio.sleep(0.02)
    began = time.monotonic()
    assert await asyncio.to_thread(lambda: 1) == 1 and await in_thread(lambda: 2) == 2
    assert time.monotonic() - began < 5
    assert {type(result) for result in await hanging} == {OverrunError}
    release.set()
    await asyncio.sleep(0.1)  # they end, and nobody is told
    assert not caplog.records


SCRIPT = """
import asyncio, time
from verl_agentic.deadlines import OverrunError, in_thread, within
async def main():
    try:
        await within(in_thread(time.sleep, 3600), 0.1, what="a thread")
    except OverrunError:
        print("late", flush=True)
asyncio.run(main())
"""


def test_a_thread_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode, done.stderr) == ("late\n", 0, "")


def test_a_thread_that_ends_after_its_loop_is_not_missed() -> None:
    ended = threading.Event()

    def work() -> None:
        time.sleep(0.1)
        ended.set()

    async def main() -> None:
        with pytest.raises(OverrunError):
            await within(in_thread(work), 0.01, what="a thread")

    asyncio.run(main())
    assert ended.wait(2.0)
    time.sleep(0.02)  # an exception in the thread would be a warning now
