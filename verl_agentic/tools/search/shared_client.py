"""One HTTP client per server, process and event loop, closed when its loop ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_agentic.tools.search.http_retriever import HttpConfig, HttpRetriever
from verl_agentic.tools.search.retriever import Passage, Retriever
from verl_agentic.web.per_loop import PerLoop

_clients: PerLoop[HttpConfig, HttpRetriever] = PerLoop(HttpRetriever)


def http_retriever(config: HttpConfig) -> Retriever:
    """Returns a retriever that can be used from any event loop; equal configs share clients."""
    return _AnyLoop(config)


async def client_of_this_loop(config: HttpConfig) -> HttpRetriever:
    """Returns the client of the running event loop, the same one for equal configs."""
    return await _clients.get(config)


@dataclass(frozen=True)
class _AnyLoop:
    config: HttpConfig

    async def ready(self) -> None:
        await (await client_of_this_loop(self.config)).ready()

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        return await (await client_of_this_loop(self.config)).search(queries, top_k=top_k)
