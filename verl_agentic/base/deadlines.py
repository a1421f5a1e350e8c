"""Deadlines that hold whatever the work does: it is cancelled, given a moment to clean up, and left behind.

A deadline counts who spends its time. Time in a queue is not counted (`waiting`). Time of untrusted code is counted
apart (`running_code`): such code never gets more than the deadlines around it leave, and a deadline that it has spent
says so (`OverrunError.by_code`), so that code cannot pass off its slowness as a failure of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from verl_agentic.base.errors import EnvError

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_GRACE_S = (0.1, 5.0)  # at least, even when the loop is busy, and at most


_RESERVE_S, _RESERVE_SHARE = 5.0, 0.1
"""Part of a deadline that is kept from untrusted code, for the work around it: this time, at most this share."""
_CODE_SHARE = 0.1
"""Share of a deadline from which on untrusted code has spent it."""
MIN_CODE_S = 0.05
"""Shortest wall time of untrusted code: it is ended at once, as a result."""
_MIN_CHECK_S = 0.01
_MIN_WATCH_S = 0.05


class OverrunError(Exception):
    """The work was still running at its deadline; never leaves the loop."""

    def __init__(self, message: str, *, by_code: bool = False) -> None:
        super().__init__(message)
        self.by_code = by_code
        """Whether untrusted code has spent the time."""


class _Clock:
    """The time of one deadline. Sandboxes change it from the thread of their pool."""

    def __init__(self, timeout_s: float, label: str) -> None:
        self._timeout_s, self._label, self.outer = timeout_s, label, _CLOCK.get()
        self._lock = threading.Lock()
        self._num_waiting = self._num_running = 0
        self._counted_s = self._code_s = 0.0
        self._read_at = time.monotonic()
        self.has_waited = False

    def change(self, *, waiting: int = 0, running: int = 0) -> None:
        """Changes how many parts of the work wait in a queue, and how many run untrusted code."""
        with self._lock:
            self._update_times()
            self._num_waiting += waiting
            self._num_running += running
            self.has_waited = self.has_waited or waiting > 0

    @property
    def left_s(self) -> float:
        """Time that is left, in seconds."""
        with self._lock:
            self._update_times()
            return self._timeout_s - self._counted_s

    @property
    def is_spent_by_code(self) -> bool:
        """True if untrusted code used a tenth of the time or more."""
        with self._lock:
            self._update_times()
            return 0 < self._timeout_s * _CODE_SHARE <= self._code_s

    def code_left_s(self, wanted_s: float) -> float:
        """Returns the time that untrusted code may still use, at most `wanted_s`. Warns if it never could have that."""
        with self._lock:
            self._update_times()
            most_s = self._timeout_s - min(_RESERVE_S, self._timeout_s * _RESERVE_SHARE)
            left_s = most_s - self._code_s
        if wanted_s > most_s and (messages := short_deadlines.get()) is not None:
            needed_s = wanted_s + _RESERVE_S
            messages.add(
                f"{self._label} has {self._timeout_s:g} s, and code in it may run {wanted_s:g} s; raise the "
                f"deadline to {needed_s:g} s, or lower the limit of the code"
            )
        return min(left_s, wanted_s)

    def spend_code(self, wall_s: float) -> None:
        """Counts time of untrusted code that was not counted while it ran."""
        with self._lock:
            self._counted_s += wall_s
            self._code_s += wall_s

    def _update_times(self) -> None:
        now = time.monotonic()
        if self._num_running:
            self._code_s += now - self._read_at
        if self._num_running or not self._num_waiting:
            self._counted_s += now - self._read_at
        self._read_at = now


_CLOCK: contextvars.ContextVar[_Clock | None] = contextvars.ContextVar("deadline", default=None)
short_deadlines: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar("short_deadlines", default=None)
"""Where a caller wants to know them: deadlines that are shorter than the limit of code that ran in them."""


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Stops the deadlines around a block that waits in a queue. What waits there needs a limit of its own."""
    with _change_clocks(waiting=1):
        yield


@contextlib.contextmanager
def running_code(wall_s: float) -> Iterator[float]:
    """Counts a block as the time of untrusted code.

    Yields the wall time that the code may have: `wall_s`, or less where a deadline around it leaves less.
    """
    allowed_s = max(code_left_s(wall_s), MIN_CODE_S)
    with _change_clocks(running=1):
        yield allowed_s


def left_s() -> float | None:
    """Returns the time that the deadlines around the caller leave, in seconds; None without any."""
    return min((clock.left_s for clock in _list_clocks()), default=None)


def spend_code(wall_s: float) -> None:
    """Counts time of untrusted code after it ran, where only then it is known which part of a wait it was."""
    for clock in _list_clocks():
        clock.spend_code(wall_s)


def code_left_s(wanted_s: float) -> float:
    """Returns the time that untrusted code may have here: at most `wanted_s`, and less than 0 where it had too much."""
    for clock in _list_clocks():
        wanted_s = min(wanted_s, clock.code_left_s(wanted_s))
    return wanted_s


def _list_clocks() -> list[_Clock]:
    """Returns the clocks of the deadlines around the caller, the nearest one first."""
    clocks, clock = [], _CLOCK.get()
    while clock is not None:
        clocks.append(clock)
        clock = clock.outer
    return clocks


@contextlib.contextmanager
def _change_clocks(**counts: int) -> Iterator[None]:
    clocks = _list_clocks()
    for clock in clocks:
        clock.change(**counts)
    try:
        yield
    finally:
        for clock in clocks:
            clock.change(**{name: -count for name, count in counts.items()})


async def within(awaitable: Awaitable[T], timeout_s: float, *, what: str) -> T:
    """Returns the result of the work, or ends it at its deadline.

    `asyncio.wait_for` waits for work that ignores its cancellation for ever; this does not.

    Args:
        timeout_s: how long it may take, in seconds; time in a queue (`waiting`) does not count.
        what: names the work in the log.

    Raises:
        OverrunError: it was still running.
        EnvError: it cancelled itself.
    """
    clock = _Clock(timeout_s, what)
    outer = _CLOCK.set(clock)
    try:
        task = asyncio.get_running_loop().create_task(_contain_exit(awaitable, what))
    finally:
        _CLOCK.reset(outer)
    try:
        await _wait_for_end(task, timeout_s, clock)
    except asyncio.CancelledError:
        await _end_task(task, label=what, timeout_s=timeout_s)
        raise
    if not task.done():
        by_code = clock.is_spent_by_code
        await _end_task(task, label=what, timeout_s=timeout_s)
        raise OverrunError(f"{what} was still running after {timeout_s:g} s", by_code=by_code)
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
    threading.Thread(target=_run_call, args=(call, loop, future), name=f"in_thread {function!r}", daemon=True).start()
    return await future


def _run_call(call: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
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


class _SlowThreadError(BaseException):
    """Interrupts a thread. It is no Exception, which foreign code catches."""


@contextlib.contextmanager
def limit_thread(cpu_s: float, *, what: str) -> Iterator[None]:
    """Interrupts the block in this thread when it has used its CPU time; a call of C code first returns.

    Args:
        cpu_s: CPU time of this thread, in seconds; wall time where the system does not count it.
        what: names the block in the error.

    Raises:
        EnvError: the block took longer.
    """
    ident = threading.get_ident()
    read_s = _cpu_clock_of(ident)
    end_s, lock, is_done = read_s() + cpu_s, threading.Lock(), threading.Event()

    def watch() -> None:
        while not is_done.wait(max(_MIN_WATCH_S, end_s - read_s())):
            with lock:
                if not is_done.is_set() and read_s() >= end_s:
                    _interrupt_thread(ident, _SlowThreadError)

    threading.Thread(target=watch, name=f"limit of {what}", daemon=True).start()
    try:
        try:
            yield
        finally:
            with lock:
                is_done.set()
                _interrupt_thread(ident, None)  # one that has not arrived yet would end the caller
    except _SlowThreadError as cause:
        raise EnvError(f"{what} took more than {cpu_s:g} s of CPU time") from cause


def _cpu_clock_of(ident: int) -> Callable[[], float]:
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    return functools.partial(time.clock_gettime, time.pthread_getcpuclockid(ident))


def _interrupt_thread(ident: int, error: type[BaseException] | None) -> None:
    """Raises an exception in a thread before its next instruction in Python; None withdraws it."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error) if error else None)


async def _contain_exit(awaitable: Awaitable[T], label: str) -> T:
    try:
        return await awaitable
    except SystemExit as cause:  # asyncio would end the loop, and all that runs in it
        raise RuntimeError(f"{label} wanted to end the process, got SystemExit: {cause}") from cause


async def _wait_for_end(task: asyncio.Future[Any], timeout_s: float, clock: _Clock | None = None) -> None:
    """Waits until the task has ended, or for so long; `asyncio.wait`, which is for many, costs twice as much."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer: asyncio.TimerHandle

    def wake(_: Any) -> None:
        if not waiter.done():
            waiter.set_result(None)

    def check() -> None:
        nonlocal timer
        if clock is not None and clock.has_waited and (left_s := clock.left_s) > 0:
            timer = loop.call_later(max(left_s, _MIN_CHECK_S), check)
        else:
            wake(None)

    timer = loop.call_at(loop.time() + max(0.0, timeout_s), check)
    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        task.remove_done_callback(wake)


async def _end_task(task: asyncio.Future[Any], *, label: str, timeout_s: float) -> None:
    """Cancels work and gives it a tenth of its time to end, within `_GRACE_S`; what it raises then is dropped."""
    task.cancel()
    task.add_done_callback(_drop_result)
    await _wait_for_end(task, min(max(timeout_s / 10, _GRACE_S[0]), _GRACE_S[1]))
    if not task.done():
        logger.error("%s ignores its cancellation and was left behind; it may have leaked", label)


def _drop_result(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved: asyncio would print it
