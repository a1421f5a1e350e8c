"""A retriever over a BM25 index in this process, loaded once for all episodes and event loops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from verl_agentic.errors import SearchError, boundary
from verl_agentic.tools.search.bm25 import Bm25Index, open_index
from verl_agentic.tools.search.retriever import Passage

_lock = threading.Lock()
_retrievers: dict[Path, LocalRetriever] = {}


class LocalRetriever:
    """Searches an index in a thread; can be called from any event loop."""

    def __init__(self, load: Callable[[], Bm25Index]) -> None:
        """Takes what returns the index; it runs in a thread of its own, when the index is first needed."""
        self._load = load
        self._lock = threading.Lock()
        self._loading: concurrent.futures.Future[Bm25Index] | None = None
        # One thread: a search hardly ever gives up the interpreter's lock, so that more threads would be no faster, and
        # each would take the lock from the event loop for a while.
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="bm25-search")

    async def ready(self) -> None:
        """Returns when the index is loaded; see `Retriever.ready`. A load that fails is tried anew by the next call."""
        await self.index()

    async def index(self) -> Bm25Index:
        """Returns the index; see `ready`."""
        loading = self._begin()
        return loading.result() if loading.done() else await asyncio.wrap_future(loading)

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        """Returns the passages of each query; see `Retriever.search`."""
        index = await self.index()
        with boundary(SearchError, "searching the index"):
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: [index.search(query, top_k=top_k) for query in queries]
            )

    def _begin(self) -> concurrent.futures.Future[Bm25Index]:
        """Returns the load that is under way or done; begins it if there is none."""
        with self._lock:
            if self._loading is None:
                self._loading = concurrent.futures.Future()
                self._loading.set_running_or_notify_cancel()  # a caller that gives up does not cancel it for the others
                # Not a thread of the loop's own pool: building takes minutes, and tokenizers wait for that pool.
                threading.Thread(target=self._run, args=(self._loading,), name="bm25-index", daemon=True).start()
            return self._loading

    def _run(self, loading: concurrent.futures.Future[Bm25Index]) -> None:
        try:
            with boundary(SearchError, "loading the index"):
                index = self._load()
        except BaseException as error:
            with self._lock:
                self._loading = None
            loading.set_exception(error)
        else:
            loading.set_result(index)


def local_retriever(folder: str | Path) -> LocalRetriever:
    """Returns the retriever of this process over a corpus folder (`bm25.open_index`), the same one every time.

    A corpus that changes later is seen by new processes only.
    """
    path = Path(folder).resolve()
    with _lock:
        if path not in _retrievers:
            _retrievers[path] = LocalRetriever(lambda: open_index(path))
        return _retrievers[path]
