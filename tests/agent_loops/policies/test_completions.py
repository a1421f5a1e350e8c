"""A client of an OpenAI-compatible server over real HTTP: what is sent, what is tried again, what is given up."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from fastapi.responses import JSONResponse, PlainTextResponse
from openai_server import Server, choice, connected, refuse, serving

from verl_agentic.base.errors import ConfigError, PolicyError
from verl_agentic.evaluate.policies.completions import CompletionsPolicy, Endpoint, EndpointConfig, Sampling
from verl_agentic.web import http_service
from verl_agentic.web.http_service import retry_wait_s


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest_asyncio.fixture
async def server(running: Server) -> AsyncIterator[Server]:
    async with connected(running, []):
        pass
    yield running
    assert not running.answers, "all answers were asked for"


@pytest_asyncio.fixture
async def connect(running: Server) -> AsyncIterator[Any]:
    endpoints: list[Endpoint] = []

    def make(url: str = running.url, **config: Any) -> Endpoint:
        endpoints.append(Endpoint(EndpointConfig(url=url, model="m", **{"retry_wait_s": 0.01, **config})))
        return endpoints[-1]

    yield make
    for endpoint in endpoints:
        await endpoint.close()


def policy(endpoint: Endpoint, **options: Any) -> CompletionsPolicy:
    return CompletionsPolicy(endpoint, **{"sampling": Sampling(), "stop_texts": (), "stop_token_ids": (), **options})


async def generate(policy: CompletionsPolicy, prompt_ids: Any = (1, 2, 3), max_tokens: int = 7) -> Any:
    return await policy.generate(prompt_ids, messages=(), max_tokens=max_tokens, request_id="r")


async def test_ids_go_in_and_ids_with_their_log_probs_come_out(server: Server, connect: Any) -> None:
    server.answers = [choice(token_ids=[5, 6], logprobs={"token_logprobs": [-0.5, -1.0]})]
    player = policy(connect())
    completion = await generate(player)
    assert (completion.token_ids, completion.log_probs, completion.finish_reason) == ([5, 6], [-0.5, -1.0], "stop")
    assert server.paths == ["/v1/completions"] and server.keys == [None]
    assert server.bodies == [
        {"model": "m", "prompt": [1, 2, 3], "max_tokens": 7, "logprobs": 1, "return_token_ids": True}
    ]
    assert dict(player.usage) == {"requests": 1, "prompt_tokens": 3, "completion_tokens": 2}


async def test_sampling_stops_key_and_further_fields_are_sent(server: Server, connect: Any) -> None:
    server.answers = [choice(token_ids=[5])]
    endpoint = connect(api_key="secret", extra={"min_p": 0.1})
    player = policy(
        endpoint, sampling=Sampling(temperature=0.0, top_p=0.9, seed=3), stop_texts=("</a>",), stop_token_ids=(9,)
    )
    await generate(player)
    (body,) = server.bodies
    assert {"temperature": 0.0, "top_p": 0.9, "seed": 3, "min_p": 0.1}.items() <= body.items()
    assert (body["stop"], body["include_stop_str_in_output"], body["stop_token_ids"]) == (["</a>"], True, [9])
    assert server.keys == ["Bearer secret"]
    assert "secret" not in repr(endpoint.config)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("length", "length"), ("abort", "aborted"), ("tool_calls", "stop"), (None, "stop")],
)
async def test_the_reason_of_the_end_is_told_in_our_words(
    server: Server, connect: Any, reason: str | None, finish: str
) -> None:
    server.answers = [choice(token_ids=[5], finish_reason=reason)]
    assert (await generate(policy(connect()))).finish_reason == finish


@pytest.mark.parametrize("logprobs", [None, {"token_logprobs": [-0.5]}, {"token_logprobs": [-0.5, None]}, {}])
async def test_log_probs_that_are_not_whole_are_none_at_all(server: Server, connect: Any, logprobs: Any) -> None:
    server.answers = [choice(token_ids=[5, 6], logprobs=logprobs)]
    assert (await generate(policy(connect()))).log_probs is None


async def test_a_server_without_token_ids_is_told_of_with_the_way_out(server: Server, connect: Any) -> None:
    server.answers = [choice(text="hi")]
    with pytest.raises(ConfigError, match="--mode"):
        await generate(policy(connect()))


@pytest.mark.sample(7)
@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
async def test_what_may_pass_is_tried_again(server: Server, connect: Any, code: int) -> None:
    server.answers = [refuse(code), refuse(code), choice(token_ids=[5])]
    endpoint = connect()
    assert (await generate(policy(endpoint))).token_ids == [5]
    assert (endpoint.retries, len(server.bodies)) == (2, 3)


def waits(server: Server) -> list[float]:
    """Returns what lay between requests: at least what was waited."""
    return [after - before for before, after in zip(server.times, server.times[1:], strict=False)]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the list of the waits that endpoints decide on."""
    waits_s: list[float] = []

    def noted(*args: Any, **options: Any) -> float:
        waits_s.append(retry_wait_s(*args, **options))
        return waits_s[-1]

    monkeypatch.setattr(http_service, "retry_wait_s", noted)
    return waits_s


async def test_a_wait_is_as_long_as_the_server_asks_for(server: Server, connect: Any, chosen: list[float]) -> None:
    never = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}  # dates are not understood: our own wait counts
    server.answers = [refuse(429, **{"retry-after": "0.4"}), refuse(429, **never), choice(token_ids=[5])]
    endpoint = connect()
    await generate(policy(endpoint))
    assert chosen[0] == 0.4 <= waits(server)[0] and chosen[1] <= 0.02


async def test_retries_come_to_an_end(server: Server, connect: Any) -> None:
    server.answers = [refuse(503, "overloaded")] * 3
    with pytest.raises(PolicyError, match="503"):
        await generate(policy(connect(max_retries=2)))
    assert len(server.bodies) == 3


async def test_a_server_that_is_not_there_is_an_error_that_names_it(connect: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(
        PolicyError, match=rf"127.0.0.1:{port}/v1/completions cannot be reached, got ConnectError.* in 3 "
    ):
        await generate(policy(connect(f"http://127.0.0.1:{port}", max_retries=2)))


@pytest.mark.slow
async def test_a_request_that_hangs_is_ended_at_its_deadline_and_tried_again(server: Server, connect: Any) -> None:
    is_over = threading.Event()

    async def hang() -> None:
        while not is_over.is_set():
            await asyncio.sleep(0.02)

    server.answers = [hang, choice(token_ids=[5])]
    endpoint = connect(request_timeout_s=2.0)
    try:
        assert (await generate(policy(endpoint))).token_ids == [5]
        assert len(server.bodies) == 2 and endpoint.retries == 1
    finally:
        is_over.set()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (401, "refuses no key, got no; set the right one"),
        (403, "refuses no key"),
        (404, "answers 404, got no; see the URL, which ends with /v1, and the model"),
    ],
)
async def test_what_no_retry_can_help_ends_the_run_with_the_way_out(
    server: Server, connect: Any, code: int, message: str
) -> None:
    server.answers = [refuse(code)]
    with pytest.raises(ConfigError, match=message):
        await generate(policy(connect()))


async def test_a_request_that_is_refused_is_the_failure_of_one_episode(server: Server, connect: Any) -> None:
    server.answers = [refuse(400, "too long"), PlainTextResponse("nope", status_code=422)]
    for message in ("the server answers 400, got too long", "the server answers 422, got 'nope'"):
        with pytest.raises(PolicyError, match=message):
            await generate(policy(connect()))


@pytest.mark.parametrize("answer", [PlainTextResponse("<html>"), JSONResponse([1]), JSONResponse({"choices": []}), {}])
async def test_answers_that_are_none_are_failures(server: Server, connect: Any, answer: Any) -> None:
    server.answers = [answer]
    with pytest.raises(PolicyError, match="an answer must"):
        await generate(policy(connect()))


async def test_a_server_that_fails_in_its_answer_is_asked_again(server: Server, connect: Any) -> None:
    failed = choice(token_ids=[5], finish_reason="error", error={"code": 502, "message": "upstream"})
    server.answers = [failed, {"error": {"code": 502, "message": "upstream"}}, choice(token_ids=[7]), *[failed] * 2]
    assert (await generate(policy(connect()))).token_ids == [7]
    with pytest.raises(PolicyError, match="upstream"):
        await generate(policy(connect(max_retries=1)))


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (refuse(400, "This model's maximum context length is 8 tokens."), "context_full"),
        (refuse(400, "content management policy"), "content_filter"),
        (JSONResponse({"error": {"code": 403, "metadata": {"reasons": ["x"]}}}, status_code=403), "content_filter"),
    ],
)
async def test_a_refused_conversation_is_a_turn_without_tokens(
    server: Server, connect: Any, answer: Any, finish: str
) -> None:
    server.answers = [answer]
    completion = await generate(policy(connect()))
    assert (list(completion.token_ids), completion.finish_reason, len(server.bodies)) == ([], finish, 1)


async def test_an_unknown_end_is_named(server: Server, connect: Any) -> None:
    server.answers = [choice(token_ids=[5], finish_reason="weather")]
    with pytest.raises(PolicyError, match="finish_reason"):
        await generate(policy(connect()))


async def test_models_are_listed_where_the_server_lists_them(server: Server, connect: Any) -> None:
    server.answers = [{"data": [{"id": "m", "max_model_len": 99}]}, refuse(404), refuse(401)]
    endpoint = connect()
    assert await endpoint.models() == {"m": {"id": "m", "max_model_len": 99}}
    assert await endpoint.models() == {}
    with pytest.raises(ConfigError, match="refuses no key"):
        await endpoint.models()
    assert set(server.paths) == {"/v1/models"}


async def test_a_path_of_ones_own_is_kept(server: Server, running: Server, connect: Any) -> None:
    server.answers = [choice(token_ids=[5])] * 2
    for url in (f"{running.url}/proxy/openai/", f"{running.url}/"):
        await generate(policy(connect(url)))
    assert server.paths == ["/proxy/openai/completions", "/v1/completions"]


@pytest.mark.parametrize(
    "config", [{"url": "localhost:8000"}, {"request_timeout_s": 0}, {"max_retries": -1}, {"extra": {"max_tokens": 64}}]
)
def test_configurations_that_cannot_work_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EndpointConfig(**{"url": "http://h", "model": "m", **config})
