"""A retriever behind HTTP, with the contract of Search-R1's retrieval server (`search_wire.py`).

Queries of all episodes within a few milliseconds share one request. Equal queries are sent once. Results are cached.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from verl_agentic.base.errors import AgenticError, ConfigError, SearchError, SearchUnavailableError, boundary
from verl_agentic.base.settings import Settings, setting
from verl_agentic.tools.search.retriever import Passage, QueryRefusedError
from verl_agentic.tools.search.search_wire import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    Found,
    addresses,
    read_answer,
    request_body,
)
from verl_agentic.web.http_service import OVERLOADED, Attempts, open_http, read_wait_s

if TYPE_CHECKING:
    import httpx

_FIRST_PAUSE_S = 0.2
_BIG_ANSWER_BYTES = 2**17  # takes about a millisecond to read: in a thread
# Responses that one bad query may cause: the request is halved until that query is alone.
_MAY_BE_ONE_QUERY = frozenset({400, 413, 422, 500})

_Key = tuple[str, int]
"""Query and top_k."""
_Outcome = Found | AgenticError


class HttpConfig(Settings):
    """Options of the server and its client."""

    url: str = field(default_factory=lambda: os.environ.get(URL_VARIABLE, ""))
    """Address, with or without `/retrieve`; by default of the environment variable `VERL_AGENTIC_SEARCH_URL`."""
    token: str = field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE, ""), repr=False)
    """Bearer token; by default of the environment variable `VERL_AGENTIC_SEARCH_TOKEN`."""
    deadline_s: float = setting(60.0, above=0)
    """Time for a query with all its waiting and repetitions, in seconds."""
    max_attempts: int = setting(6, min=1)
    """Maximum requests for one query, if the server is overloaded, fails or cannot be reached."""
    max_requests: int = setting(8, min=1)
    """Maximum parallel requests."""
    max_batch: int = setting(64, min=1)
    """Maximum queries of one request."""
    batch_wait_s: float = setting(0.003, min=0)
    """Time that a query waits for others, in seconds."""
    cache_size: int = setting(16_384, min=0)
    """Maximum number of cached queries; the least recently used is evicted first. 0: no cache."""

    def check_together(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"url must be http(s)://HOST:PORT, got {self.url!r}; give the option url, or set {URL_VARIABLE}"
            )


class HttpRetriever:
    """A client for one event loop; `shared_client.http_retriever` returns one for all loops."""

    def __init__(self, config: HttpConfig) -> None:
        self.config = config
        self._has_answered = False
        self.counts: Counter[str] = Counter()
        """`queries`, of them `cached` and `joined` (another was asking for the same), `requests`, `repeated` ones."""
        self._address, self._where = addresses(config.url)
        options = {"token": config.token, "max_connections": config.max_requests}
        self._client = open_http(config.url, extra="search", what="searching over HTTP", **options)
        self._cache: OrderedDict[_Key, Found] = OrderedDict()
        self._asked: dict[_Key, asyncio.Future[Found]] = {}
        self._waiting: dict[int, list[str]] = {}
        """top_k -> queries of the next request."""
        self._serving: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Returns at once; the first search shows whether the server answers."""

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        """Returns the passages of each query; see `Retriever.search`.

        Raises:
            SearchUnavailableError: the server could not be reached, or was overloaded, until the deadline.
            QueryRefusedError: it refused one query but answered another.
            SearchError: it refuses all queries, or its answer cannot be read.
        """
        if self._client.is_closed:
            raise SearchError("the retriever is closed, got a search; make a new one")
        answers = [self._enqueue_query((_make_encodable(query), top_k)) for query in queries]
        # Shielded: a cancelled episode must not cancel queries of others.
        return [list(passages) for passages in await asyncio.gather(*map(asyncio.shield, answers))]

    async def close(self) -> None:
        """Ends all requests and closes the connections; waiting callers get an error."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._client.aclose()
        self._waiting.clear()
        for query, top_k in list(self._asked):  # neither sent, nor begun to be sent
            self._settle_futures({query: _build_closed_error()}, top_k)

    def _enqueue_query(self, key: _Key) -> asyncio.Future[Found]:
        """Returns a future of the result: cached, in flight, or part of the next request."""
        self.counts["queries"] += 1
        if key in self._asked:
            self.counts["joined"] += 1
            return self._asked[key]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = loop.create_future()
        if key in self._cache:
            self.counts["cached"] += 1
            self._cache.move_to_end(key)
            answer.set_result(self._cache[key])
            return answer
        self._asked[key] = answer
        query, top_k = key
        waiting = self._waiting.setdefault(top_k, [])
        waiting.append(query)
        if len(waiting) >= self.config.max_batch:
            self._flush_queries(top_k)
        elif len(waiting) == 1:
            loop.call_later(self.config.batch_wait_s, self._flush_queries, top_k)
        return answer

    def _flush_queries(self, top_k: int) -> None:
        """Sends the waiting queries, if any."""
        queries = self._waiting.pop(top_k, [])
        if queries:
            task = asyncio.get_running_loop().create_task(self._answer_queries(queries, top_k))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _answer_queries(self, queries: list[str], top_k: int) -> None:
        """Sets the results of these queries: passages or errors."""
        outcomes: Mapping[str, _Outcome] = dict.fromkeys(queries, _build_closed_error())
        try:
            outcomes = await asyncio.wait_for(self._retrieve_guarded(queries, top_k), self.config.deadline_s)
        except asyncio.TimeoutError:
            late = SearchUnavailableError(
                f"{self._where} must answer within {self.config.deadline_s:g} s, got nothing; check its load"
            )
            outcomes = dict.fromkeys(queries, late)
        except AgenticError as error:
            outcomes = dict.fromkeys(queries, error)
        finally:
            self._settle_futures(outcomes, top_k)

    def _settle_futures(self, outcomes: Mapping[str, _Outcome], top_k: int) -> None:
        for query, outcome in outcomes.items():
            answer = self._asked.pop((query, top_k))
            if isinstance(outcome, AgenticError):
                answer.set_exception(outcome)
                answer.exception()  # marks it as retrieved: all callers may have been cancelled
                continue
            answer.set_result(outcome)
            self._cache[query, top_k] = outcome
            if len(self._cache) > self.config.cache_size:
                self._cache.popitem(last=False)

    async def _retrieve_guarded(self, queries: list[str], top_k: int) -> Mapping[str, _Outcome]:
        with boundary(SearchError, f"searching at {self._where}"):
            return await self._retrieve_passages(queries, top_k)

    async def _retrieve_passages(self, queries: list[str], top_k: int) -> Mapping[str, _Outcome]:
        """Repeats the request until it succeeds or a retry cannot help; returns query -> passages or failure."""
        from httpx import TransportError

        body = request_body(queries, top_k=top_k)
        failure: AgenticError = SearchUnavailableError(f"{self._where} was not asked")
        async for number in (attempts := Attempts(self.config.max_attempts, first_s=_FIRST_PAUSE_S)):
            self.counts.update(["requests", "repeated"] if number > 1 else ["requests"])
            try:
                response = await self._client.post(self._address, json=body)
            except TransportError as cause:
                failure = SearchUnavailableError(
                    f"{self._where} must be reachable, got {type(cause).__name__}: {cause}; check that the server is "
                    "running"
                )
                continue
            if response.status_code == 200:
                self._has_answered = True
                results = await self._read_answer(response.content, len(queries), top_k)
                return dict(zip(queries, results, strict=True))
            if response.status_code in _MAY_BE_ONE_QUERY and len(queries) > 1:
                return await self._retrieve_halves(queries, top_k)
            failure = self._classify_failure(response)
            if response.status_code != 500 and response.status_code not in OVERLOADED:
                break
            attempts.asked_s = read_wait_s(response.headers.get("retry-after"))
        return dict.fromkeys(queries, failure)

    async def _retrieve_halves(self, queries: list[str], top_k: int) -> Mapping[str, _Outcome]:
        half = len(queries) // 2
        parts = await asyncio.gather(
            *(self._retrieve_passages(part, top_k) for part in (queries[:half], queries[half:]))
        )
        return {**parts[0], **parts[1]}

    async def _read_answer(self, body: bytes, count: int, top_k: int) -> list[Found]:
        if len(body) > _BIG_ANSWER_BYTES:
            return await asyncio.to_thread(read_answer, body, count=count, top_k=top_k, source=self._where)
        return read_answer(body, count=count, top_k=top_k, source=self._where)

    def _classify_failure(self, response: httpx.Response) -> AgenticError:
        answer = f"HTTP {response.status_code}: {response.text[:300]}"
        if response.status_code in OVERLOADED:
            return SearchUnavailableError(
                f"{self._where} is overloaded, got {answer}; lower max_requests, or add servers"
            )
        if response.status_code >= 500:
            return SearchError(f"{self._where} failed, got {answer}; see its log")
        if self._has_answered and response.status_code in _MAY_BE_ONE_QUERY:
            return QueryRefusedError(f"{self._where} refused the query, got {answer}; try another one")
        return SearchError(f"{self._where} refused the request, got {answer}; check the url")


def _build_closed_error() -> AgenticError:
    return SearchError("the retriever was closed before the query was answered, got no answer; search again")


def _make_encodable(text: str) -> str:
    """Returns valid UTF-8; a policy may write invalid text."""
    return text.encode("utf-8", "replace").decode()
