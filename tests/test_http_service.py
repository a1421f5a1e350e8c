"""The client of HTTP services: pauses between attempts, and failures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from openai_server import Server, refuse, serving

from verl_agentic.base.errors import EnvError, EnvUnavailableError, PolicyError, ScoringError
from verl_agentic.web import http_service
from verl_agentic.web.http_service import Attempts, HttpService, read_wait_s, retry_wait_s


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the list of the pauses that are made, which take no time; those of servers in other threads do."""
    slept: list[float] = []
    thread, real_sleep = threading.get_ident(), asyncio.sleep

    async def sleep(pause_s: float) -> None:
        if threading.get_ident() != thread:
            return await real_sleep(pause_s)
        slept.append(pause_s)

    monkeypatch.setattr(http_service.asyncio, "sleep", sleep)
    return slept


async def test_pauses_double_up_to_their_limit_and_are_random_there_too(pauses: list[float]) -> None:
    attempts = Attempts(40, first_s=0.5, max_s=4.0)
    assert [(number, attempts.is_last) async for number in attempts] == [(n, n == 40) for n in range(1, 41)]
    limits = [0.5, 1.0, 2.0, *[4.0] * 36]
    assert all(limit / 2 <= pause <= limit for limit, pause in zip(limits, pauses, strict=True)), pauses
    assert len(set(pauses[3:])) > 30


async def test_a_service_may_ask_for_a_pause_up_to_a_limit_and_for_one_attempt(pauses: list[float]) -> None:
    async for number in (attempts := Attempts(4, first_s=0.1, max_s=1.0, max_asked_s=9.0)):
        attempts.asked_s = {1: 5.0, 2: 99.0}.get(number, attempts.asked_s)
    assert pauses[:2] == [5.0, 9.0] and pauses[2] <= 0.4


async def test_time_ends_attempts_before_a_pause_that_would_outlast_it() -> None:
    started = time.monotonic()
    assert len([_ async for _ in Attempts(first_s=0.02, max_s=0.02, within_s=0.1)]) > 3
    assert [number async for number in Attempts(first_s=60.0, max_s=60.0, within_s=1.0)] == [1]
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("7", 7.0), ("0.5", 0.5), (3, 3.0), *((text, 0.0) for text in (None, "", "-1", "nan", "inf", "1.2.3"))],
)
def test_only_numbers_of_seconds_are_pauses(header: Any, wait_s: float) -> None:
    assert read_wait_s(header) == wait_s
    assert read_wait_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_wait_s(2_000, 0.0, first_s=0.5, max_s=8.0, max_asked_s=8.0) <= 8.0


async def test_failures_of_a_server_are_errors_of_this_package(server: Server) -> None:
    service = HttpService(f"{server.url}/v1/", name="the toy", extra="serve", token="sesame")
    server.answers = [{"a": 1}, refuse(500, "broken"), refuse(404, "broken")]
    assert await service.ask("POST", "/completions", json={}) == {"a": 1}
    assert server.paths[-1] == "/v1/completions" and server.keys[-1] == "Bearer sesame"
    for error in (EnvError, ScoringError):
        with pytest.raises(error, match=r"the toy .* refused /completions, got HTTP .*broken"):
            await service.ask("POST", "/completions", json={}, error=error)
    await service.close()


@pytest.mark.parametrize("error", [EnvUnavailableError, PolicyError])
async def test_a_server_that_is_not_there_is_unavailable(error: Any) -> None:
    service = HttpService("http://127.0.0.1:9", name="the toy", extra="serve", unavailable=error)
    with pytest.raises(error, match=r"127\.0\.0\.1:9"):
        await service.send("GET", "/")
    await service.close()
