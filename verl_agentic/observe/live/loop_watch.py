"""A watch on an event loop from another thread: whether it answers, and which code blocks it."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from verl_agentic.base.places.error_places import locate_running

_EVERY_S = 0.1


class LoopWatch:
    """Pings an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, blocked_s: float) -> None:
        """Must be made in the thread of the event loop; it is blocked after `blocked_s` without an answer."""
        self._loop, self._blocked_s = loop, blocked_s
        self._thread_id = threading.get_ident()
        self._asked, self._is_asked = 0.0, False
        self.stack: list[str] = []
        """The formatted frames of the code that blocks the loop now, the innermost last."""
        self.place = ""
        """The innermost of them in the user's files."""
        self.longest_s: dict[str, float] = {}
        """Place -> the longest time that the loop was blocked there, in seconds."""

    def look(self, now: float) -> bool:
        """Pings the event loop; returns whether it is blocked."""
        if not self._is_asked:
            self._is_asked, self._asked = True, now
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._record_answer)
            return False
        if now - self._asked < self._blocked_s:
            return False
        self.stack = _read_stack(self._thread_id)
        self.place = locate_running(self.stack)
        return True

    def lag_s(self, now: float) -> float:
        """Returns for how long the loop has not answered, in seconds."""
        return now - self._asked if self._is_asked else 0.0

    def _record_answer(self) -> None:
        lag_s = self.lag_s(time.monotonic())
        if self.stack and lag_s >= self._blocked_s:  # the stack may be of code that ran just after the answer
            self.longest_s[self.place] = max(lag_s, self.longest_s.get(self.place, 0.0))
        self._is_asked, self.stack, self.place = False, [], ""


def _read_stack(thread_id: int) -> list[str]:
    """Returns the frames of a running thread, the innermost last; none of a thread that has ended.

    `faulthandler` reads all of them at once. Other ways walk the frames while the thread goes on, and CPython 3.11 can
    then read freed memory.
    """
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        threads = file.read().decode(errors="replace").split("\n\n")
    frames = next((lines for head, *lines in map(str.splitlines, threads) if f"0x{thread_id:016x} " in head), [])
    return [f"{line}\n" for line in reversed(frames)]


@contextlib.contextmanager
def watched_loop(*, blocked_s: float, on_blocked: Callable[[str, float], None]) -> Iterator[LoopWatch]:
    """Watches the running event loop in a thread.

    Args:
        blocked_s: time without an answer after which the loop is blocked, in seconds.
        on_blocked: called in that thread with place and time in seconds, again and again while the loop is blocked.
    """
    watch, is_done = LoopWatch(asyncio.get_running_loop(), blocked_s=blocked_s), threading.Event()

    def run() -> None:
        while not is_done.wait(_EVERY_S):
            if watch.look(now := time.monotonic()):
                on_blocked(watch.place, watch.lag_s(now))

    thread = threading.Thread(target=run, name="verl_agentic loop watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        is_done.set()
        thread.join()
