"""Objects that belong to one event loop, such as HTTP clients: one per key and loop, closed when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary


class _Closable(Protocol):
    async def close(self) -> None: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=_Closable)


class PerLoop(Generic[K, V]):
    """Makes and keeps one object per key and event loop."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[K, tuple[V, AsyncGenerator[None, None]]]] = (
            WeakKeyDictionary()
        )

    async def get(self, key: K) -> V:
        """Returns the object of the running event loop."""
        objects = self._open.setdefault(asyncio.get_running_loop(), {})
        if key not in objects:
            resource = self._make(key)
            closing = _closed_at_the_end(resource, lambda: objects.pop(key, None))
            objects[key] = (resource, closing)
            await anext(closing)
        return objects[key][0]


async def _closed_at_the_end(resource: _Closable, forget: Callable[[], object]) -> AsyncGenerator[None, None]:
    # At its end, a loop closes its asynchronous generators (`shutdown_asyncgens`, as in `asyncio.run`). This closes the
    # object without a call of the user.
    try:
        yield
    finally:
        forget()
        await resource.close()
