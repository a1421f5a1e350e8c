"""Interface of search: passages, their records, and retrievers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from verl_agentic.base.errors import DataError, SearchError


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of text of a corpus."""

    title: str
    text: str
    id: str = ""
    score: float = 0.0
    """Relevance to the query; comparable within the results of one query only."""

    @property
    def contents(self) -> str:
        """Title and text in one, as corpora of Search-R1 write them: the title in quotes, a line break, the text."""
        return f'"{self.title}"\n{self.text}'


class QueryRefusedError(SearchError):
    """The retriever refused one query but answered others, so the query is the cause."""


class Index(Protocol):
    """Finds passages of a corpus in this process."""

    fingerprint: str
    """Hash of the content of the corpus."""

    def search(self, query: str, *, top_k: int) -> list[Passage]:
        """Returns the passages that fit best, the best one first, at most `top_k` of them."""
        ...


class Retriever(Protocol):
    """Finds passages; one is shared by all episodes of a process."""

    async def ready(self) -> None:
        """Loads or builds the index, which may take minutes.

        Raises:
            ConfigError, DataError: the corpus is missing or cannot be read.
        """
        ...

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        """Returns the passages of each query, the best one first, at most `top_k` of them.

        Raises:
            SearchError: the retriever failed; a failure is never an empty result.
        """
        ...


def passage_of(record: Any, source: str, *, score: float = 0.0) -> Passage:
    """Returns the passage of a JSON object: one with `title` and `text`, or with Search-R1's `contents`.

    Raises:
        DataError: both are missing; the message begins with `source`.
    """
    if isinstance(record, Mapping):
        name, text, contents = record.get("id", ""), record.get("text"), record.get("contents")
        if isinstance(text, str):
            return Passage(title=str(record.get("title") or ""), text=text, id=str(name), score=score)
        if isinstance(contents, str):
            title, _, text = contents.partition("\n")
            return Passage(title=_strip_quotes(title.strip()), text=text, id=str(name), score=score)
    content = sorted(record) if isinstance(record, Mapping) else repr(record)[:80]
    raise DataError(f"{source} is no passage, got {content}; a passage has the texts title and text, or contents")


def _strip_quotes(title: str) -> str:
    return title[1:-1] if len(title) > 1 and title[0] == title[-1] == '"' else title
