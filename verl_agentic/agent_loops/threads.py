"""Threads for the loop's own work (encoding, parsing, clipping), so that it never blocks the event loop.

`asyncio.to_thread` shares its few threads with the environments: some calls that hang there would hold up all episodes.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# More would not be faster, and each one that runs Python holds up the event loop.
_THREADS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="agent_loops")
_LONG = 2_000  # characters or tokens; what is shorter is done faster than a thread is reached


async def offload(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what the function returns, which computes and never waits for anything."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, functools.partial(function, *args, **kwargs))


async def offload_if_long(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what the function returns, whose work grows with `size` (in characters or tokens)."""
    return function(*args, **kwargs) if size < _LONG else await offload(function, *args, **kwargs)
