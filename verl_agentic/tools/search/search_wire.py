"""The contract of Search-R1's retrieval server: requests and responses.

POST /retrieve  {"queries": [...], "topk": k, "return_scores": true}
200             {"result": [[{"document": {"contents": "\\"title\\"\\ntext"}, "score": s}, ...], ...]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from verl_agentic.base.errors import DataError, SearchError
from verl_agentic.tools.search.retriever import Passage, passage_of

URL_VARIABLE, TOKEN_VARIABLE = "VERL_AGENTIC_SEARCH_URL", "VERL_AGENTIC_SEARCH_TOKEN"
ROUTE = "/retrieve"
Found = tuple[Passage, ...]
"""The passages of one query, the best one first."""


def request_body(queries: Sequence[str], *, top_k: int) -> dict[str, Any]:
    """Returns the request. It always asks for scores, because some servers fail otherwise."""
    return {"queries": list(queries), "topk": top_k, "return_scores": True}


def read_answer(body: bytes, *, count: int, top_k: int, source: str) -> list[Found]:
    """Returns the passages of each of `count` queries.

    Raises:
        SearchError: the response violates the contract; the message begins with `source`.
    """
    try:
        answer = json.loads(body)
    except ValueError as cause:
        raise SearchError(f"{source} must answer with JSON, got {body[:200]!r}") from cause
    results = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(results, list) or len(results) != count or not all(isinstance(hits, list) for hits in results):
        raise SearchError(
            f'{source} must answer {{"result": [...]}} with one list for each of {count} queries, got {body[:200]!r}; '
            "check that it is a server with Search-R1's contract"
        )
    try:
        return [tuple(_read_hit(hit, source) for hit in hits[:top_k]) for hits in results]
    except DataError as cause:
        raise SearchError(f"the answer of {cause}") from cause


def addresses(url: str) -> tuple[str, str]:
    """Returns the address, and its form for messages: without user and password."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    path = path if path.endswith(ROUTE) else path + ROUTE
    called = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    return called, urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))


def _read_hit(hit: Any, source: str) -> Passage:
    if not isinstance(hit, dict) or "document" not in hit:
        return passage_of(hit, source)  # of a server that gives no scores
    score = hit.get("score")
    return passage_of(hit["document"], source, score=float(score) if isinstance(score, (int, float)) else 0.0)
