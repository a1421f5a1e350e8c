"""Threads for blocking calls of sandboxes, which are closed while the process ends.

From 3.12 on, Python starts no thread once it has begun to end, and `threading._register_atexit` calls back after that.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_is_ending = False


class LastingThreads(ThreadPoolExecutor):
    """Runs calls in threads, and in the thread of their caller once the process ends."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Starts the call; at the end of the process, returns after it."""
        if not _is_ending:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def start_no_more_threads() -> None:
    """Makes all later calls run in the threads of their callers."""
    global _is_ending
    _is_ending = True
