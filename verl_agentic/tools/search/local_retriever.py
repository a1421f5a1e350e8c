"""A retriever over a BM25 index in this process, loaded once for all episodes and event loops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from verl_agentic.base.errors import SearchError, boundary
from verl_agentic.tools.search.bm25 import Bm25Index, open_index
from verl_agentic.tools.search.retriever import Passage

_lock = threading.Lock()
_retrievers: dict[Path, LocalRetriever] = {}


class LocalRetriever:
    """Searches an index in a thread; can be called from any event loop."""

    def __init__(self, load: Callable[[], Bm25Index]) -> None:
        """Takes a function that returns the index; it runs in its own thread, at the first use."""
        self._load = load
        self._lock = threading.Lock()
        self._loading: concurrent.futures.Future[Bm25Index] | None = None
        # One thread: a search holds the interpreter's lock, so more threads would not be faster and would block the
        # event
        # loop.
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="bm25-search")

    async def ready(self) -> None:
        """Loads the index; see `Retriever.ready`. After a failure, the next call tries again."""
        await self.index()

    async def index(self) -> Bm25Index:
        """Returns the index; see `ready`."""
        loading = self._start_loading()
        return loading.result() if loading.done() else await asyncio.wrap_future(loading)

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        """Returns the passages of each query; see `Retriever.search`."""
        index = await self.index()
        with boundary(SearchError, "searching the index"):
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: [index.search(query, top_k=top_k) for query in queries]
            )

    def _start_loading(self) -> concurrent.futures.Future[Bm25Index]:
        """Returns the running or finished load; starts it if there is none."""
        with self._lock:
            if self._loading is None:
                self._loading = concurrent.futures.Future()
                self._loading.set_running_or_notify_cancel()  # a cancelled caller must not cancel it for others
                # Not in the loop's own pool: building takes minutes, and tokenizers use that pool.
                threading.Thread(
                    target=self._run_loading, args=(self._loading,), name="bm25-index", daemon=True
                ).start()
            return self._loading

    def _run_loading(self, loading: concurrent.futures.Future[Bm25Index]) -> None:
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
    """Returns the retriever of this process over a corpus folder (`bm25.open_index`), always the same one.

    Only new processes see later changes of the corpus.
    """
    path = Path(folder).resolve()
    with _lock:
        if path not in _retrievers:
            _retrievers[path] = LocalRetriever(lambda: open_index(path))
        return _retrievers[path]
