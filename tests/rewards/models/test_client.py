"""The client: what it sends, how it tries again, what it counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import PlainTextResponse
from openai_server import Server, choice, refuse, serving

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.client import ChatClient, Patience, Price, Reply, connections
from verl_agentic.graders.models.limiter import EndpointLimits, Limiter

_BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x" * 4_000}], "max_tokens": 10}
_HI = choice(message={"content": "Hi"})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@asynccontextmanager
async def asking(server: Server, answers: list[Any], tmp_path: Path, **patience: Any) -> AsyncIterator[ChatClient]:
    """Gives a client of a server that will give these answers, all of which must be asked for."""
    for kept in (server.bodies, server.paths, server.keys, server.times):
        kept.clear()
    server.answers = list(answers)
    async with connections() as shared:
        yield ChatClient(
            shared.http,
            Limiter(EndpointLimits(folder=str(tmp_path)), name="e"),
            url=f"{server.url}/v1/",
            api_key="sesame",
            patience=Patience(**{"retry_wait_s": 0.02, **patience}),
        )
    assert not server.answers, "all answers were asked for"


async def test_a_request_has_the_key_and_the_body_and_its_answer_is_counted(server: Server, tmp_path: Path) -> None:
    async with asking(server, [_HI], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.attempts) == ("Hi", 3, 2, 1)
    assert 0 < reply.latency_s < 10 and reply.failure is None
    assert server.paths == ["/v1/chat/completions"] and server.keys == ["Bearer sesame"] and server.bodies == [_BODY]


def test_a_price_is_per_million_tokens() -> None:
    assert Price(input=2.0, output=8.0).of(500_000, 250_000) == 3.0


async def test_what_may_pass_is_tried_again_with_growing_waits(server: Server, tmp_path: Path) -> None:
    answers = [refuse(500), refuse(429), refuse(503), _HI]
    async with asking(server, answers, tmp_path, retry_wait_s=0.1) as client:
        reply = await client.ask(_BODY)
    assert (reply.text, reply.attempts) == ("Hi", 4)
    waits = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert waits[0] >= 0.05 and waits[1] >= 0.1 and waits[2] >= 0.2
    assert reply.latency_s >= sum(waits)


async def test_a_server_that_asks_for_time_gets_it_from_everyone(server: Server, tmp_path: Path) -> None:
    async with asking(server, [refuse(429, **{"retry-after": "0.5"}), _HI, _HI], tmp_path) as client:
        first = asyncio.create_task(client.ask(_BODY))
        while not any("not_before" in path.read_text() for path in tmp_path.rglob("*.json")):
            await asyncio.sleep(0.005)
        assert (await client.ask(_BODY)).text == (await first).text == "Hi"
    assert server.times[1] - server.times[0] >= 0.45, "neither came before"


async def test_a_server_that_stays_down_is_a_failure_and_no_exception(server: Server, tmp_path: Path) -> None:
    async with asking(server, [refuse(500), refuse(502)], tmp_path, retries=1) as client:
        reply = await client.ask(_BODY)
    assert reply.text is None and reply.failure == "the endpoint answers 502" and reply.attempts == 2
    async with connections() as shared:
        limiter = Limiter(EndpointLimits(folder=str(tmp_path)), name="e")
        nowhere = ChatClient(
            shared.http, limiter, url="http://127.0.0.1:9/v1", api_key="", patience=Patience(retries=0)
        )
        reply = await nowhere.ask(_BODY)
    assert reply.text is None and reply.failure is not None and "ConnectError" in reply.failure


async def test_an_answer_that_does_not_come_is_a_failure_at_the_deadline(server: Server, tmp_path: Path) -> None:
    async def late() -> dict[str, Any]:
        await asyncio.sleep(3.0)
        return _HI

    async with asking(server, [late], tmp_path, timeout_s=1.0) as client:
        reply = await client.ask(_BODY)
    assert reply.failure == "no answer within 1 s"


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("<html>sign in</html>"),
        PlainTextResponse("[" * 200_000),
        {"choices": []},
        {"choices": [{}]},
        [],
        refuse(400, "too long"),
    ],
)
async def test_an_answer_of_another_form_is_a_failure(server: Server, tmp_path: Path, answer: Any) -> None:
    async with asking(server, [answer], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert reply.text is None and reply.failure is not None and "the endpoint answers" in reply.failure


async def test_an_answer_without_text_is_an_empty_one(server: Server, tmp_path: Path) -> None:
    async with asking(server, [choice(message={"content": None})], tmp_path) as client:
        assert (await client.ask(_BODY)).text == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"finish_reason": "error", "message": {"content": ""}, "error": {"code": 502, "message": "upstream"}},
        {"finish_reason": "error", "message": {"content": "The beginning of"}},
        {"finish_reason": "stop", "message": {"content": "The"}, "error": {"code": "server_error", "message": "x"}},
        None,
    ],
)
async def test_a_failure_in_the_middle_of_an_answer_is_tried_again_and_never_an_answer(
    server: Server, tmp_path: Path, fields: dict[str, Any] | None
) -> None:
    failed = {"error": {"code": 502, "message": "upstream"}} if fields is None else choice(**fields)
    async with asking(server, [failed, _HI, *[failed] * 2], tmp_path, retries=1) as client:
        first, second = await client.ask(_BODY), await client.ask(_BODY)
    assert (first.text, first.attempts, first.failure) == ("Hi", 2, None)
    assert (second.text, second.content, second.attempts) == (None, None, 2) and second.failure is not None
    assert "fails in the middle" in second.failure and not second.is_refused


@pytest.mark.parametrize("message", [{"content": None, "reasoning_content": "Hm"}, {"content": "<think>Hm"}])
async def test_an_answer_cut_in_its_thoughts_says_what_to_raise(server: Server, tmp_path: Path, message: Any) -> None:
    async with asking(server, [choice(message=message, finish_reason="length")], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert (reply.text, reply.is_cut, reply.is_refused) == (None, True, False) and reply.failure is not None
    assert "max_tokens=10 within its thoughts; raise max_tokens" in reply.failure


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "<think>Hm</think>\nHi"}, "Hi"),
        ({"content": "Hm</think>Hi"}, "Hi"),
        ({"content": "Hi", "reasoning_content": "Hm", "reasoning": "Hm"}, "Hi"),
        ({"content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Hi"}]}, "Hi"),
        ({"content": None, "reasoning": "Hm"}, ""),
    ],
)
@pytest.mark.parametrize("finish", ["stop", None, "tool_calls", "eos"])
async def test_thoughts_are_no_part_of_an_answer(
    server: Server, tmp_path: Path, message: Any, text: str, finish: str | None
) -> None:
    async with asking(server, [choice(message=message, finish_reason=finish)], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert (reply.text, reply.failure, reply.is_cut) == (text, None, False)


async def test_an_end_that_is_not_known_is_named(server: Server, tmp_path: Path) -> None:
    async with asking(server, [choice(message={"content": "Hi"}, finish_reason="weather")], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert (reply.text, reply.content) == (None, "Hi") and "finish_reason 'weather'" in (reply.failure or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"finish_reason": "content_filter", "message": {"content": "I"}},
        {"finish_reason": "stop", "message": {"content": None, "refusal": "I cannot."}},
        {"finish_reason": "error", "message": {"content": ""}, "error": {"code": 403, "metadata": {"reasons": ["x"]}}},
    ],
)
async def test_a_refusal_is_no_failure_and_no_answer(server: Server, tmp_path: Path, fields: Any) -> None:
    async with asking(server, [choice(**fields)], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert (reply.text, reply.content, reply.is_refused, reply.attempts) == (None, None, True, 1) and reply.failure


async def test_tokens_that_the_server_does_not_count_are_estimated(server: Server, tmp_path: Path) -> None:
    answer = {"choices": [{"message": {"content": "12345678"}}], "usage": {"prompt_tokens": None}}
    async with asking(server, [answer], tmp_path) as client:
        reply = await client.ask(_BODY)
    assert (reply.input_tokens, reply.output_tokens) == (1_000, 2)


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_what_no_retry_can_help_is_told(server: Server, tmp_path: Path, code: int) -> None:
    async with asking(server, [refuse(code, "go away")], tmp_path) as client:
        with pytest.raises(ConfigError, match=f"answers {code}, got .*go away.*; "):
            await client.ask(_BODY)


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_a_probe_without_the_content_tells_its_refusal_from_a_wrong_key(
    server: Server, tmp_path: Path, code: int
) -> None:
    async with asking(server, [refuse(code), _HI, refuse(code), refuse(401)], tmp_path) as client:
        replies = [await client.ask({**_BODY, "model": f"m{code}"}) for _ in range(2)]
        assert [reply.text for reply in replies] == [None, None] and all(reply.is_refused for reply in replies)
        with pytest.raises(ConfigError, match="answers 401"):
            await client.ask(_BODY)
    asked = [body["messages"][0]["content"] for body in server.bodies]
    assert len(asked) == 4 and asked[0] == "x" * 4_000 and "x" not in asked[1], "one probe, without the content"


async def test_the_limit_learns_what_a_request_really_took(server: Server, tmp_path: Path) -> None:
    async with connections() as shared:
        limiter = Limiter(EndpointLimits(tokens_per_minute=60_000, folder=str(tmp_path)), name="e")
        client = ChatClient(shared.http, limiter, url=f"{server.url}/v1", api_key="", patience=Patience())
        server.answers = [_HI, _HI]
        begun = time.monotonic()
        # Estimated: 10,010 tokens, of which 9,010 would be a debt of 9 s; taken: 5.
        await client.ask({**_BODY, "messages": [{"role": "user", "content": "x" * 40_000}]})
        await client.ask({**_BODY, "messages": [{"role": "user", "content": "x" * 2_000}]})
    assert time.monotonic() - begun < 5


def test_event_loops_come_and_go(server: Server, tmp_path: Path) -> None:
    async def ask() -> list[Reply]:
        async with asking(server, [_HI] * 3, tmp_path) as client:
            return await asyncio.gather(*(client.ask(_BODY) for _ in range(3)))

    for _ in range(3):  # a connection left open in an old loop would be a warning, which is an error
        assert [reply.text for reply in asyncio.run(ask())] == ["Hi"] * 3


async def test_all_who_ask_at_the_same_time_share_connections() -> None:
    async with connections() as one, connections() as other:
        assert one is other
    async with connections() as later:
        assert later is not one and not later.http.is_closed
    assert one.http.is_closed and later.http.is_closed
