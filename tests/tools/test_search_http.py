"""The client for retrieval servers: real HTTP on loopback, against servers that answer, fail, hang and lie."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from services import answering  # pyright: ignore[reportMissingImports]

from verl_agentic.base.errors import ConfigError, SearchError, SearchUnavailableError
from verl_agentic.base.types import ToolResult
from verl_agentic.tools.search.http_retriever import HttpConfig, HttpRetriever
from verl_agentic.tools.search.retriever import Passage
from verl_agentic.tools.search.search_tool import SearchTool
from verl_agentic.tools.search.shared_client import client_of_this_loop, http_retriever

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


class Script:
    """An ASGI application that plays a retrieval server and remembers what it was asked."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer], *, delay_s: float = 0.0) -> None:
        self.answer = answer
        self.delay_s = delay_s
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.at_once = self.most_at_once = 0
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        asked = json.loads(body)
        self.paths.append(scope["path"])
        self.bodies.append(asked)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        begun = time.monotonic()
        while time.monotonic() - begun < self.delay_s:  # a test may put it to 0 at any time
            await asyncio.sleep(0.005)
        self.at_once -= 1
        status, content, *rest = self.answer(asked)
        headers = [(key.encode(), value.encode()) for key, value in (rest[0] if rest else {}).items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        await send({"type": "http.response.body", "body": data})

    @property
    def queries(self) -> list[list[str]]:
        return [body["queries"] for body in self.bodies]


def found(body: dict[str, Any]) -> Answer:
    """Answers each query with passages that name it."""
    hits = [
        [{"document": {"id": str(k), "contents": f'"{q}"\nabout {q}'}, "score": 1.5 - k} for k in range(body["topk"])]
        for q in body["queries"]
    ]
    return 200, {"result": hits}


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Script], Script]]:
    """Serves scripts at addresses of their own, all from one server."""
    scripts: list[Script] = []

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        _, number, rest = scope["path"].split("/", 2)
        await scripts[int(number)]({**scope, "path": f"/{rest}"}, receive, send)

    with answering(dispatch) as service:

        def start(script: Script) -> Script:
            script.url = f"{service.url}/{len(scripts)}"
            scripts.append(script)
            return script

        yield start


def config(script: Script, **changes: Any) -> HttpConfig:
    return HttpConfig(url=script.url, **{"deadline_s": 20.0, **changes})


def titles(results: list[list[Passage]]) -> list[list[str]]:
    return [[passage.title for passage in passages] for passages in results]


async def use(settings: HttpConfig, work: Callable[[HttpRetriever], Any]) -> Any:
    retriever = HttpRetriever(settings)
    try:
        return await work(retriever)
    finally:
        await retriever.close()


@pytest.mark.parametrize("path", ["", "/", "/retrieve", "/retrieve/", "/api/v1"])
async def test_a_search_is_search_r1s_request_whatever_the_form_of_the_url(serve: Any, path: str) -> None:
    script = serve(Script(found))
    settings = HttpConfig(url=script.url + path)
    ((first, second),) = await use(settings, lambda r: r.search(["Oked"], top_k=2))
    assert script.bodies == [{"queries": ["Oked"], "topk": 2, "return_scores": True}]
    assert script.paths == ["/api/v1/retrieve" if "api" in path else "/retrieve"]
    assert (first, second) == (
        Passage(id="0", title="Oked", text="about Oked", score=1.5),
        Passage(id="1", title="Oked", text="about Oked", score=0.5),
    )


async def test_queries_of_many_episodes_travel_together_and_come_back_to_who_asked(serve: Any) -> None:
    script = serve(Script(found))

    async def many(retriever: HttpRetriever) -> list[Any]:
        return await asyncio.gather(*(retriever.search([f"q{i}"], top_k=1) for i in range(100)))

    results = await use(config(script, max_batch=32), many)
    assert [titles(result) for result in results] == [[[f"q{i}"]] for i in range(100)]
    # Three full batches leave at once, the rest after the wait.
    assert sorted(len(queries) for queries in script.queries) == [4, 32, 32, 32]


async def test_different_numbers_of_passages_travel_apart(serve: Any) -> None:
    script = serve(Script(found))

    async def both(retriever: HttpRetriever) -> list[Any]:
        return await asyncio.gather(retriever.search(["a"], top_k=1), retriever.search(["a"], top_k=3))  # pyright: ignore[reportReturnType]

    results = await use(config(script), both)
    assert [len(passages) for ((passages),) in results] == [1, 3] and len(script.bodies) == 2


async def test_equal_queries_are_asked_once_and_then_known(serve: Any) -> None:
    script = serve(Script(found, delay_s=0.05))

    async def again(retriever: HttpRetriever) -> Any:
        await asyncio.gather(*(retriever.search(["a", "b"], top_k=1) for _ in range(8)))
        await retriever.search(["b", "a"], top_k=1)
        return dict(retriever.counts)

    assert await use(config(script), again) == {"queries": 18, "joined": 14, "cached": 2, "requests": 1}
    assert script.queries == [["a", "b"]]


async def test_the_cache_forgets_what_was_not_used_for_longest(serve: Any) -> None:
    script = serve(Script(found))

    async def work(retriever: HttpRetriever) -> None:
        for query in ("a", "b", "a", "c", "a", "b"):  # `c` puts out `b`
            assert titles(await retriever.search([query], top_k=1)) == [[query]]

    await use(config(script, cache_size=2), work)
    assert script.queries == [["a"], ["b"], ["c"], ["b"]]


async def test_what_an_episode_does_with_its_passages_reaches_no_other(serve: Any) -> None:
    async def work(retriever: HttpRetriever) -> None:
        (passages,) = await retriever.search(["a"], top_k=2)
        passages.clear()
        assert titles(await retriever.search(["a"], top_k=2)) == [["a", "a"]]

    await use(config(serve(Script(found))), work)


async def test_the_server_never_gets_more_requests_at_one_time_than_allowed(serve: Any) -> None:
    script = serve(Script(found, delay_s=30.0))

    async def many(retriever: HttpRetriever) -> None:
        searches = asyncio.gather(*(retriever.search([f"q{i}"], top_k=1) for i in range(12)))
        while script.at_once < 3:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)  # no other one comes
        script.delay_s = 0.0
        await searches

    await use(config(script, max_batch=1, max_requests=3), many)
    assert (len(script.bodies), script.most_at_once) == (12, 3)


@pytest.mark.sample(4)
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_server_that_fails_for_a_moment_is_asked_again(serve: Any, status: int) -> None:
    answers = iter([lambda _: (status, "busy"), found])
    script = serve(Script(lambda body: next(answers)(body)))
    assert titles(await use(config(script), lambda r: r.search(["a"], top_k=1))) == [["a"]]
    assert len(script.bodies) == 2


async def test_a_server_may_say_how_long_to_wait(serve: Any) -> None:
    answers = iter([lambda _: (429, "busy", {"retry-after": "0.6"}), found])
    script = serve(Script(lambda body: next(answers)(body)))
    started = time.monotonic()
    await use(config(script), lambda r: r.search(["a"], top_k=1))
    assert time.monotonic() - started >= 0.6  # without the header: at most 0.2


@pytest.mark.parametrize(
    ("status", "error", "message", "requests"),
    [
        (503, SearchUnavailableError, r"is overloaded, got HTTP 503: .*busy", 2),
        (500, SearchError, r"failed, got HTTP 500: .*busy", 2),
        (404, SearchError, r"refused the request, got HTTP 404: .*busy.*check the url", 1),
        (422, SearchError, r"refused the request, got HTTP 422", 1),
    ],
)
async def test_a_server_that_goes_on_failing_is_an_error_and_no_empty_result(
    serve: Any, status: int, error: type[SearchError], message: str, requests: int
) -> None:
    script = serve(Script(lambda body: (status, "busy")))
    with pytest.raises(error, match=message) as caught:
        await use(config(script, max_attempts=2), lambda r: r.search(["a"], top_k=1))
    assert type(caught.value) is error and len(script.bodies) == requests


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_query_that_a_working_server_refuses_is_the_policys_mistake(serve: Any, status: int) -> None:
    script = serve(Script(lambda body: (status, "what?") if "odd" in body["queries"] else found(body)))

    async def ask(retriever: HttpRetriever) -> list[ToolResult]:
        tool = SearchTool(retriever, top_k=1)
        return [await tool.call({"query": query}) for query in ("a", "odd", "b")]

    first, refused, last = await use(config(script), ask)
    assert not first.is_error and not last.is_error
    assert (refused.is_error, refused.error_kind) == (True, "wrong_arguments") and f"HTTP {status}" in refused.content


async def test_a_failure_is_not_kept(serve: Any) -> None:
    answers = iter([lambda _: (404, "not yet"), found])
    script = serve(Script(lambda body: next(answers)(body)))

    async def twice(retriever: HttpRetriever) -> Any:
        with pytest.raises(SearchError):
            await retriever.search(["a"], top_k=1)
        return await retriever.search(["a"], top_k=1)

    assert titles(await use(config(script), twice)) == [["a"]]


@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_a_query_that_the_server_cannot_take_fails_alone(serve: Any, status: int) -> None:
    script = serve(Script(lambda body: (status, "no") if "bad" in body["queries"] else found(body)))

    async def work(retriever: HttpRetriever) -> list[Any]:
        searches = (retriever.search([query], top_k=1) for query in ["a", "b", "bad", "c", "d"])
        return await asyncio.gather(*searches, return_exceptions=True)

    results = await use(config(script, max_attempts=1), work)
    assert [isinstance(result, SearchError) for result in results] == [False, False, True, False, False]
    assert script.queries[0] == ["a", "b", "bad", "c", "d"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>", r"must answer with JSON, got b'<html>'"),
        ([], r'must answer {"result": \[\.\.\.\]} with one list for each of 1 queries'),
        ({"result": []}, r"with one list for each of 1 queries"),
        ({"result": [{"document": {}}]}, r"with one list for each of 1 queries"),
        (
            {"result": [[{"document": {"title": "x"}, "score": 1}]]},
            r"the answer of http.* is no passage, got \['title'\]",
        ),
        ({"result": [["text"]]}, r"is no passage, got 'text'"),
    ],
)
async def test_an_answer_that_breaks_the_contract_is_an_error(serve: Any, content: Any, message: str) -> None:
    script = serve(Script(lambda body: (200, content)))
    with pytest.raises(SearchError, match=message):
        await use(config(script), lambda r: r.search(["a"], top_k=1))


async def test_answers_without_scores_and_with_more_passages_than_asked_for_can_be_read(serve: Any) -> None:
    hits = [{"contents": '"T"\ntext'}, {"title": "U", "text": "more"}, {"contents": "x"}]
    script = serve(Script(lambda body: (200, {"result": [hits]})))
    assert titles(await use(config(script), lambda r: r.search(["a"], top_k=2))) == [["T", "U"]]


async def test_a_big_answer_is_read_like_a_small_one(serve: Any) -> None:
    script = serve(Script(lambda body: (200, {"result": [[{"contents": '"T"\n' + "x" * 300_000}]]})))
    ((passage,),) = await use(config(script), lambda r: r.search(["a"], top_k=1))
    assert (passage.title, len(passage.text)) == ("T", 300_000)


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    settings = HttpConfig(url=f"http://user:secret@127.0.0.1:{port}", max_attempts=2)
    with pytest.raises(
        SearchUnavailableError, match=rf"http://127\.0\.0\.1:{port}/retrieve must be reachable"
    ) as caught:
        await use(settings, lambda r: r.search(["a"], top_k=1))
    assert "secret" not in str(caught.value)


async def test_user_and_password_of_the_url_are_sent(serve: Any) -> None:
    seen: list[bytes] = []
    script = Script(found)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]).get(b"authorization", b""))
        await script(scope, receive, send)

    with answering(app) as service:
        await use(HttpConfig(url=service.url.replace("//", "//me:pw@")), lambda r: r.search(["a"], top_k=1))
    assert seen == [b"Basic bWU6cHc="]


async def test_a_connection_that_breaks_is_made_anew() -> None:
    """The server takes the first connection and drops it; whoever comes next is answered."""
    body = json.dumps({"result": [[{"contents": '"T"\nt'}]]}).encode()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            listening.accept()[0].close()
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=answer)
        thread.start()
        settings = HttpConfig(url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        assert titles(await use(settings, lambda r: r.search(["a"], top_k=1))) == [["T"]]
        thread.join(10)


async def test_a_server_that_hangs_is_given_up_at_the_deadline_and_others_go_on(serve: Any) -> None:
    hanging, quick = serve(Script(found, delay_s=30.0)), serve(Script(found))

    async def slow() -> float:
        started = time.monotonic()
        with pytest.raises(SearchUnavailableError, match=r"must answer within 0\.2 s, got nothing"):
            await use(config(hanging, deadline_s=0.2), lambda r: r.search(["a"], top_k=1))
        return time.monotonic() - started

    elapsed, results = await asyncio.gather(slow(), use(config(quick), lambda r: r.search(["a"], top_k=1)))
    hanging.delay_s = 0.0
    assert 0.2 <= elapsed < 10 and titles(results) == [["a"]]


async def test_an_episode_that_is_cancelled_leaves_the_queries_of_others(serve: Any) -> None:
    script = serve(Script(found, delay_s=0.1))

    async def work(retriever: HttpRetriever) -> Any:
        gives_up = asyncio.create_task(retriever.search(["a"], top_k=1))
        stays = asyncio.create_task(retriever.search(["a", "b"], top_k=1))
        await asyncio.sleep(0.03)
        gives_up.cancel()
        return await stays

    assert titles(await use(config(script), work)) == [["a"], ["b"]]
    assert script.queries == [["a", "b"]]


async def test_a_failure_that_nobody_waits_for_any_more_is_dropped_without_noise(serve: Any) -> None:
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))
    script = serve(Script(lambda body: (404, "no"), delay_s=0.05))

    async def work(retriever: HttpRetriever) -> None:
        gives_up = asyncio.create_task(retriever.search(["a"], top_k=1))
        await asyncio.sleep(0.02)
        gives_up.cancel()
        await asyncio.sleep(0.2)

    await use(config(script), work)
    gc.collect()
    assert len(script.bodies) == 1 and noise == []


async def test_text_that_is_none_can_be_searched_for(serve: Any) -> None:
    script = serve(Script(found))
    await use(config(script), lambda r: r.search(["half \ud83d pair"], top_k=1))
    assert script.queries == [["half ? pair"]]


@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "not begun"])
@pytest.mark.parametrize("max_batch", [1, 64])
async def test_a_retriever_that_is_closed_tells_who_waits_and_who_comes_late(
    serve: Any, is_sent: bool, max_batch: int
) -> None:
    script = serve(Script(found, delay_s=30.0))
    retriever = HttpRetriever(config(script, max_batch=max_batch))
    waiting = asyncio.create_task(retriever.search(["a"], top_k=1))
    await asyncio.sleep(0)
    while is_sent and not script.bodies:
        await asyncio.sleep(0.005)
    started = time.monotonic()
    await retriever.close()
    with pytest.raises(SearchError, match="closed before the query was answered"):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(SearchError, match="the retriever is closed"):
        await retriever.search(["late"], top_k=1)
    assert time.monotonic() - started < 10 and len(script.bodies) == is_sent
    script.delay_s = 0.0


def test_an_event_loop_has_one_client_and_closes_it_at_its_end(serve: Any) -> None:
    script = serve(Script(found))
    settings = config(script)

    async def use_twice() -> HttpRetriever:
        first, second = await client_of_this_loop(settings), await client_of_this_loop(config(script))
        assert first is second and await client_of_this_loop(config(script, max_batch=3)) is not first
        retrievers = [http_retriever(settings) for _ in range(2)]
        await asyncio.gather(*(retriever.search(["a"], top_k=1) for retriever in retrievers))
        await retrievers[0].ready()
        assert first.counts["queries"] == 2
        return first

    clients = [asyncio.run(use_twice()) for _ in range(2)]
    assert clients[0] is not clients[1]
    assert all(client._client.is_closed for client in clients) and len(script.bodies) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"url": ""},
            r"url must be http\(s\)://HOST:PORT, got ''; give the option url, or set VERL_AGENTIC_SEARCH_URL",
        ),
        ({"url": "127.0.0.1:8000"}, r"url must be http\(s\)://HOST:PORT, got '127\.0\.0\.1:8000'"),
        ({"url": "http://h", "max_requests": 0}, r"max_requests must be a whole number \(at least 1\), got 0"),
        ({"url": "http://h", "cache_size": -1}, r"cache_size must be a whole number \(at least 0\), got -1"),
    ],
)
def test_a_config_that_cannot_work_is_refused(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_AGENTIC_SEARCH_URL", raising=False)
    with pytest.raises(ConfigError, match=message):
        HttpConfig(**changes)


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_AGENTIC_SEARCH_URL", "http://host:1")
    assert HttpConfig().url == "http://host:1"
