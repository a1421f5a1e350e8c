"""Threads for the loop's own work (encoding, parsing, clipping), so that it never blocks the event loop.

`asyncio.to_thread` shares its few threads with the environments, so hanging calls there would block all episodes.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# More threads are not faster, and each running one slows down the event loop.
_THREADS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="agent_loops")
_LONG = 2_000  # characters or tokens; below this, a thread costs more than the work


async def offload(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function that only computes in a thread, and returns its result."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, functools.partial(function, *args, **kwargs))


async def offload_if_long(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function in a thread if `size` (characters or tokens) is large, and returns its result."""
    return function(*args, **kwargs) if size < _LONG else await offload(function, *args, **kwargs)
