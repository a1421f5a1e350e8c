"""A retriever over an index in this process, loaded once for all episodes and event loops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

from verl_agentic.base.errors import ConfigError, SearchError, boundary
from verl_agentic.tools.search.bm25 import open_index
from verl_agentic.tools.search.retriever import Index, Passage

Kind = Literal["bm25", "dense", "hybrid"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_lock = threading.Lock()
_retrievers: dict[tuple[Path, Kind, str], LocalRetriever] = {}


class LocalRetriever:
    """Searches an index in a thread; can be called from any event loop."""

    def __init__(self, load: Callable[[], Index]) -> None:
        """Takes a function that returns the index; it runs in its own thread, at the first use."""
        self._load = load
        self._lock = threading.Lock()
        self._loading: concurrent.futures.Future[Index] | None = None
        # One thread: a search holds the interpreter's lock, so more threads would not be faster and would block the
        # event
        # loop.
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="search")

    async def ready(self) -> None:
        """Loads the index; see `Retriever.ready`. After a failure, the next call tries again."""
        await self.index()

    async def index(self) -> Index:
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

    def _start_loading(self) -> concurrent.futures.Future[Index]:
        """Returns the running or finished load; starts it if there is none."""
        with self._lock:
            if self._loading is None:
                self._loading = concurrent.futures.Future()
                self._loading.set_running_or_notify_cancel()  # a cancelled caller must not cancel it for others
                # Not in the loop's own pool: building takes minutes, and tokenizers use that pool.
                threading.Thread(
                    target=self._run_loading, args=(self._loading,), name="search-index", daemon=True
                ).start()
            return self._loading

    def _run_loading(self, loading: concurrent.futures.Future[Index]) -> None:
        try:
            with boundary(SearchError, "loading the index"):
                index = self._load()
        except BaseException as error:
            with self._lock:
                self._loading = None
            loading.set_exception(error)
        else:
            loading.set_result(index)


def local_retriever(folder: str | Path, *, kind: Kind = "bm25", embedding_model: str = "minilm") -> LocalRetriever:
    """Returns the retriever of this process over a corpus folder, always the same one.

    Only new processes see later changes of the corpus.

    Args:
        folder: the corpus.
        kind: `bm25` (equal words), `dense` (similar meaning) or `hybrid` (both).
        embedding_model: of `dense` and `hybrid`: a model that `verl-agentic model fetch` knows, or a folder.

    Raises:
        ConfigError: unknown kind.
    """
    if kind not in KINDS:
        raise ConfigError(f"retriever must be one of {list(KINDS)}, got {kind!r}")
    key = (Path(folder).resolve(), kind, "" if kind == "bm25" else embedding_model)
    with _lock:
        if key not in _retrievers:
            _retrievers[key] = LocalRetriever(lambda: _open_index(*key))
        return _retrievers[key]


def _open_index(folder: Path, kind: Kind, embedding_model: str) -> Index:
    if kind == "bm25":
        return open_index(folder)
    from verl_agentic.tools.search.dense import HybridIndex, open_dense_index

    dense = open_dense_index(folder, embedding_model)
    return HybridIndex(open_index(folder), dense) if kind == "hybrid" else dense
