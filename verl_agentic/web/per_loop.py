"""Objects that belong to one event loop, such as HTTP clients: one per key and loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary


class _Closable(Protocol):
    async def close(self) -> None: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=_Closable)


class PerLoop(Generic[K, V]):
    """Makes and keeps one object per key and event loop, and closes it when the loop ends."""

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


class SharedPerLoop(Generic[K, V]):
    """Lends one object per key and event loop. The first user makes it, and the last one closes it."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._lent: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[K, tuple[V, int]]] = WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def lend(self, key: K) -> AsyncIterator[V]:
        """Provides the object of the running event loop."""
        objects = self._lent.setdefault(asyncio.get_running_loop(), {})
        shared, num_users = objects.get(key) or (self._make(key), 0)
        objects[key] = shared, num_users + 1
        try:
            yield shared
        finally:
            objects[key] = shared, objects[key][1] - 1
            if not objects[key][1]:
                del objects[key]  # before the wait, so that a new user gets a new object
                await shared.close()

    def list_lent(self) -> list[V]:
        """Returns the objects of all event loops that have users."""
        return [shared for objects in self._lent.values() for shared, _ in objects.values()]


async def _closed_at_the_end(resource: _Closable, forget: Callable[[], object]) -> AsyncGenerator[None, None]:
    # At its end, a loop closes its asynchronous generators (`shutdown_asyncgens`, as in `asyncio.run`). This closes the
    # object without a call of the user.
    try:
        yield
    finally:
        forget()
        await resource.close()
