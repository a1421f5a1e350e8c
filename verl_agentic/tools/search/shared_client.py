"""One HTTP client per server, process and event loop, closed when its loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from verl_agentic.tools.search.http_retriever import HttpConfig, HttpRetriever
from verl_agentic.tools.search.retriever import Passage, Retriever


@dataclass(frozen=True)
class _Open:
    retriever: HttpRetriever
    closing: AsyncGenerator[None, None]
    """Async generators that close the clients at the end of the event loop."""


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[HttpConfig, _Open]] = WeakKeyDictionary()


def http_retriever(config: HttpConfig) -> Retriever:
    """Returns a retriever that can be used from any event loop; equal configs share clients."""
    return _AnyLoop(config)


async def client_of_this_loop(config: HttpConfig) -> HttpRetriever:
    """Returns the client of the running event loop, the same one for equal configs."""
    clients = _open.setdefault(asyncio.get_running_loop(), {})
    if config not in clients:
        retriever = HttpRetriever(config)
        closing = _closed_at_the_end(retriever, clients)
        clients[config] = _Open(retriever, closing)
        await anext(closing)
    return clients[config].retriever


async def _closed_at_the_end(retriever: HttpRetriever, clients: dict[HttpConfig, _Open]) -> AsyncGenerator[None, None]:
    # At its end, a loop closes its asynchronous generators (`shutdown_asyncgens`, as in `asyncio.run`). This closes the
    # client without a call of the user.
    try:
        yield
    finally:
        clients.pop(retriever.config, None)
        await retriever.close()


@dataclass(frozen=True)
class _AnyLoop:
    config: HttpConfig

    async def ready(self) -> None:
        await (await client_of_this_loop(self.config)).ready()

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        return await (await client_of_this_loop(self.config)).search(queries, top_k=top_k)
