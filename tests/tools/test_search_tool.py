"""The `search` tool: what the policy reads, what it is refused, and what is a failure of the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from verl_agentic.base.errors import SearchError, SearchUnavailableError
from verl_agentic.tools.search.retriever import Passage
from verl_agentic.tools.search.search_tool import SearchTool, render_passages

FOUND = [Passage(title="Kardum", text="Kardum lies on the river Oked."), Passage(title="Bolin", text="x" * 30)]


class Answers:
    """A retriever that finds the same for every query."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.asked: list[tuple[Sequence[str], int]] = []

    async def ready(self) -> None: ...

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        self.asked.append((queries, top_k))
        if isinstance(self.found, Exception):
            raise self.found
        if self.found is None:
            await asyncio.sleep(60)
        return [self.found for _ in queries]


async def test_passages_are_shown_in_the_form_of_search_r1() -> None:
    retriever = Answers(FOUND)
    result = await SearchTool(retriever, top_k=2, max_passage_chars=30).call({"query": "  Kardum "})
    assert result.content == (
        'Doc 1(Title: "Kardum") Kardum lies on the river Oked.\nDoc 2(Title: "Bolin") ' + "x" * 30
    )
    assert not result.is_error and retriever.asked == [(["Kardum"], 2)]


def test_a_long_passage_is_cut_with_a_marker() -> None:
    assert render_passages(FOUND, max_chars=12) == (
        f'Doc 1(Title: "Kardum") Kardum lies [...]\nDoc 2(Title: "Bolin") {"x" * 12} [...]'
    )


async def test_nothing_found_is_an_answer_and_no_error() -> None:
    result = await SearchTool(Answers([])).call({"query": "nobody"})
    assert (result.content, result.is_error) == ("No passage fits this query.", False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, 'Error: the arguments must be {"query": "<string>"}'),
        ({"query": ["a"]}, 'Error: the arguments must be {"query": "<string>"}'),
        ({"query": "a", "k": 3}, 'Error: the arguments must be {"query": "<string>"}'),
        ({"query": " \n"}, "Error: the query is empty; write what to search for"),
        ({"query": "x" * 2001}, "Error: a query has at most 2000 characters, got 2001; write a shorter one"),
    ],
)
async def test_wrong_arguments_are_answered_and_not_searched_for(arguments: dict[str, Any], said: str) -> None:
    retriever = Answers(FOUND)
    result = await SearchTool(retriever).call(arguments)
    assert (result.content, result.is_error, result.error_kind) == (said, True, "wrong_arguments")
    assert retriever.asked == []


async def test_a_retriever_that_fails_or_hangs_is_a_failure_of_the_environment() -> None:
    with pytest.raises(SearchError, match="index is gone"):
        await SearchTool(Answers(SearchError("index is gone"))).call({"query": "x"})
    with pytest.raises(SearchUnavailableError, match=r"a search must end within 0\.05 s"):
        await SearchTool(Answers(None), deadline_s=0.05).call({"query": "x"})
