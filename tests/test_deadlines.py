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

from verl_agentic.base.deadlines import (
    OverrunError,
    in_thread,
    running_code,
    short_deadlines,
    spend_code,
    waiting,
    within,
)
from verl_agentic.base.errors import EnvError, boundary

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

    with pytest.raises(OverrunError, match="running"):
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
    assert "stubborn work" in caplog.text
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
        with pytest.raises(EnvError, match="cancellation"):
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

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await within(leaves(), 1.0, what="work")


def test_a_boundary_takes_an_attempt_to_end_the_process_for_a_failure() -> None:
    with pytest.raises(EnvError, match="SystemExit: 2"), boundary(EnvError, "making it"):
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


# Who spends a deadline.


async def test_time_in_a_queue_counts_against_no_deadline_around_it() -> None:
    async def queued() -> str:
        with waiting():
            await asyncio.sleep(0.6)
        return "served"

    assert await within(within(queued(), 0.3, what="inner"), 0.3, what="outer") == "served"


async def test_a_queue_in_another_thread_stops_the_deadline_too_and_what_comes_after_it_counts() -> None:
    def queue() -> None:
        with waiting():
            time.sleep(0.5)

    async def work() -> None:
        await in_thread(queue)
        await asyncio.sleep(60)

    began = time.monotonic()
    with pytest.raises(OverrunError) as late:
        await within(work(), 0.3, what="work")
    assert time.monotonic() - began >= 0.75 and not late.value.by_code


async def test_the_time_of_a_queue_counts_while_code_of_the_same_work_runs() -> None:
    async def queued() -> None:
        with waiting():
            await asyncio.sleep(60)

    async def runs() -> None:
        with running_code(60.0):
            await asyncio.sleep(60)

    async def both() -> None:
        await asyncio.gather(queued(), runs())

    with pytest.raises(OverrunError) as late:
        await within(both(), 0.2, what="work")
    assert late.value.by_code


@pytest.mark.parametrize(("code_s", "by_code"), [(0.0, False), (0.009, False), (0.011, True), (99.0, True)])
async def test_a_deadline_says_whether_code_has_spent_it(code_s: float, by_code: bool) -> None:
    async def work() -> None:
        spend_code(code_s)
        await asyncio.sleep(60)

    with pytest.raises(OverrunError) as late:
        await within(work(), 0.1, what="work")
    assert late.value.by_code == by_code


async def test_code_gets_at_most_what_the_deadlines_around_it_leave() -> None:
    async def work() -> list[float]:
        allowed = []
        for used_s in (10.0, 30.0, 60.0, 60.0):
            with running_code(60.0) as wall_s:
                allowed.append(wall_s)
            spend_code(min(used_s, wall_s))
        return allowed

    assert await work() == [60.0] * 4, "no deadline"
    allowed = await within(within(work(), 50.0, what="turn"), 900.0, what="episode")
    assert allowed == pytest.approx([45.0, 35.0, 5.0, 0.05], abs=0.01), "a tenth, at most 5 s, is kept for other work"


async def test_a_limit_of_code_that_is_longer_than_its_deadline_is_told_to_who_asks() -> None:
    async def work() -> None:
        for wall_s in (10.0, 180.0):
            with running_code(wall_s):
                pass

    short: set[str] = set()
    short_deadlines.set(short)
    await within(within(work(), 60.0, what="scoring"), 600.0, what="the episode")
    (told,) = short
    assert told.startswith("scoring has 60 s, and code in it may run 180 s; raise the deadline to 185 s")


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
from verl_agentic.base.deadlines import OverrunError, in_thread, within
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
