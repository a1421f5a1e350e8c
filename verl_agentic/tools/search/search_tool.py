"""The `search` tool: queries a retriever and shows the passages in Search-R1's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import SearchUnavailableError
from verl_agentic.base.types import ToolResult
from verl_agentic.tools.search.retriever import Passage, QueryRefusedError, Retriever

SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches a corpus and returns the passages that fit best.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to search for."}},
            "required": ["query"],
        },
    },
}
MAX_QUERY_CHARS = 2_000
_SHOWN_CHARS = 300
NOTHING_FOUND = "No passage fits this query."
CUT = " [...]"


class SearchTool:
    """Searches for the argument `query`."""

    name = "search"

    def __init__(
        self, retriever: Retriever, *, top_k: int = 3, max_passage_chars: int = 1_000, deadline_s: float = 60.0
    ) -> None:
        """Makes the tool.

        Args:
            retriever: finds the passages; shared by all episodes.
            top_k: maximum number of shown passages.
            max_passage_chars: maximum shown characters of a passage; a cut has a marker.
            deadline_s: a retriever that takes longer has failed. Must be shorter than the deadline of a tool call,
                which counts as the policy's error.
        """
        self._retriever = retriever
        self._top_k = top_k
        self._max_passage_chars = max_passage_chars
        self._deadline_s = deadline_s

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `query`."""
        return SCHEMA

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the matching passages, or a text that there are none. Raises SearchError if the retriever failed."""
        query = arguments.get("query")
        if not isinstance(query, str) or set(arguments) != {"query"}:
            return _build_refusal('the arguments must be {"query": "<string>"}')
        if not query.strip():
            return _build_refusal("the query is empty; write what to search for")
        if len(query) > MAX_QUERY_CHARS:
            return _build_refusal(
                f"a query has at most {MAX_QUERY_CHARS} characters, got {len(query)}; write a shorter one"
            )
        searching = self._retriever.search([query.strip()], top_k=self._top_k)
        try:
            (passages,) = await within(searching, self._deadline_s, what="a search")
        except QueryRefusedError as cause:
            return _build_refusal(f"this query cannot be searched for: {str(cause)[:_SHOWN_CHARS]}")
        except OverrunError as cause:
            raise SearchUnavailableError(
                f"a search must end within {self._deadline_s:g} s, got none; see the retriever, or raise the deadline"
            ) from cause
        return ToolResult(render_passages(passages, max_chars=self._max_passage_chars))


def render_passages(passages: Sequence[Passage], *, max_chars: int) -> str:
    """Returns the passages as text: `Doc 1(Title: "...") text`, one line for each passage that has one line."""
    lines = [
        f'Doc {number}(Title: "{passage.title}") {_cut_text(passage.text, max_chars)}'
        for number, passage in enumerate(passages, start=1)
    ]
    return "\n".join(lines) or NOTHING_FOUND


def _cut_text(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars].rstrip() + CUT


def _build_refusal(reason: str) -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True, error_kind="wrong_arguments")
