"""Pages by title, with a search index: the generated world, or a folder of passages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from verl_agentic.tools.search.bm25 import Bm25Index, open_index
from verl_agentic.tools.search.corpus import Corpus
from verl_agentic.tools.search.local_retriever import LocalRetriever
from verl_agentic.tools.search.retriever import Passage

from .world import make_world

WORLD = "world"
"""Name of the generated world."""
_Pages = Mapping[str, Sequence[Callable[[], str]]]
"""Title in lower case -> functions that return the texts of its passages, in order."""


class Library:
    """Finds and opens pages; loaded in a thread at the first use."""

    def __init__(self, load: Callable[[], tuple[Bm25Index, _Pages]]) -> None:
        """Takes a function that returns the index and the pages."""
        self._load = load
        self._pages: _Pages = {}
        self._retriever = LocalRetriever(self._load_both)

    async def ready(self) -> str:
        """Waits until the library is loaded; returns its fingerprint."""
        return (await self._retriever.index()).fingerprint

    async def search(self, query: str, *, count: int) -> list[Passage]:
        """Returns the passages that fit a query best."""
        (passages,) = await self._retriever.search([query], top_k=count)
        return passages

    def page(self, title: str) -> str | None:
        """Returns the text of the page with a title, or None."""
        texts = self._pages.get(" ".join(title.lower().split()))
        return None if texts is None else "\n".join(text() for text in texts)

    def _load_both(self) -> Bm25Index:
        index, self._pages = self._load()
        return index


@functools.cache
def open_library(corpus: str) -> Library:
    """Returns the library of this process: `world`, or a folder with `*.jsonl` files of passages."""
    return Library(_load_world if corpus == WORLD else lambda: _load_folder(Path(corpus)))


@functools.cache
def world_index() -> Bm25Index:
    """Returns the index of the generated world."""
    return Bm25Index.from_passages(make_world().passages(), fingerprint=WORLD)


def _load_world() -> tuple[Bm25Index, _Pages]:
    return world_index(), {name.lower(): [thing.page] for name, thing in make_world().things.items()}


def _load_folder(folder: Path) -> tuple[Bm25Index, _Pages]:
    """Indexes a folder; passages with one title are one page. Only titles and places are kept in memory."""
    index, corpus = open_index(folder), Corpus(folder)
    pages: dict[str, list[Callable[[], str]]] = {}
    for place, passage in corpus.passages():
        title = " ".join((passage.title or passage.id).lower().split())
        pages.setdefault(title, []).append(functools.partial(_read_text, corpus, place))
    return index, pages


def _read_text(corpus: Corpus, place: tuple[int, int, int]) -> str:
    return corpus.read(place).text
