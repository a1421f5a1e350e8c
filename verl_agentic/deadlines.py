"""Deadlines that hold whatever the work does: it is cancelled, given a moment to clean up, and left behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from verl_agentic.errors import EnvError

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_GRACE_S = (0.1, 5.0)  # at least, even when the loop is busy, and at most


class OverrunError(Exception):
    """The work was still running at its deadline; never leaves the loop."""


async def within(awaitable: Awaitable[T], timeout_s: float, *, what: str) -> T:
    """Returns the result of the work, or ends it at its deadline.

    `asyncio.wait_for` waits for work that ignores its cancellation for ever; this does not.

    Args:
        awaitable: the work.
        timeout_s: how long it may take, in seconds.
        what: names the work in the log.

    Raises:
        OverrunError: it was still running.
        EnvError: it cancelled itself.
    """
    grace_s = min(max(timeout_s / 10, _GRACE_S[0]), _GRACE_S[1])
    task = asyncio.get_running_loop().create_task(_contained(awaitable, what))
    try:
        await _wait(task, timeout_s)
    except asyncio.CancelledError:
        await _end(task, what=what, grace_s=grace_s)
        raise
    if not task.done():
        await _end(task, what=what, grace_s=grace_s)
        raise OverrunError(f"{what} was still running after {timeout_s:g} s")
    if task.cancelled():
        raise EnvError(f"{what} failed, got a cancellation of its own")
    return task.result()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what a function that blocks returns; it runs in a thread of its own.

    No thread can be ended from outside. One that hangs here is left behind, at a cost of its own; in the few threads
    of `asyncio.to_thread` it would hold up everyone, and the end of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    threading.Thread(target=_run, args=(call, loop, future), name=f"in_thread {function!r}", daemon=True).start()
    return await future


def _run(call: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    def deliver(value: Any, error: BaseException | None) -> None:
        if future.done():
            return  # nobody waits any more
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    value: Any = None
    error: BaseException | None = None
    try:
        value = call()
    except StopIteration as cause:
        error = RuntimeError("a function raised StopIteration")  # a future takes none
        error.__cause__ = cause
    except BaseException as cause:
        error = cause
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(deliver, value, error)


async def _contained(awaitable: Awaitable[T], what: str) -> T:
    try:
        return await awaitable
    except SystemExit as cause:  # asyncio would end the loop, and all that runs in it
        raise RuntimeError(f"{what} wanted to end the process, got SystemExit: {cause}") from cause


async def _wait(task: asyncio.Future[Any], timeout_s: float) -> None:
    """Waits until the task has ended, or for so long; `asyncio.wait`, which is for many, costs twice as much."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: Any) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_at(loop.time() + max(0.0, timeout_s), wake, None)
    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        task.remove_done_callback(wake)


async def _end(task: asyncio.Future[Any], *, what: str, grace_s: float) -> None:
    """Cancels work and waits until it has ended, but no longer than `grace_s`; what it raises then is dropped."""
    task.cancel()
    task.add_done_callback(_drop)
    await _wait(task, grace_s)
    if not task.done():
        logger.error("%s ignores its cancellation and was left behind; it may have leaked", what)


def _drop(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved: asyncio would print it
