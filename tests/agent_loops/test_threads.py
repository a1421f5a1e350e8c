"""The loop's own work has threads of its own, which nothing that hangs in an environment can hold."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward, StopReason, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.threads import offload, offload_if_long
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.tools.python import SCHEMA

ROW = EnvRow(prompt=(Message("user", "What is 6*7?"),))


async def test_long_work_runs_in_a_thread_and_short_work_where_it_stands() -> None:
    here = threading.current_thread()
    assert await offload(threading.current_thread) is not here
    assert await offload_if_long(10, threading.current_thread) is here
    assert await offload_if_long(100_000, threading.current_thread) is not here
    assert await offload(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await offload_if_long(100_000, divmod, 7, 0)


@dataclass
class Calling:
    """Calls the tool once, then answers."""

    tokenizer: Any
    thought: str = ""
    asked: int = 0

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, **_: object) -> Completion:
        body = json.dumps({"name": "python", "arguments": {"code": "1"}})
        text = "42" if self.asked else f"{self.thought}<tool_call>\n{body}\n</tool_call>"
        self.asked += 1
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
        return Completion(token_ids=ids, log_probs=[0.0] * len(ids), finish_reason="stop")


class Env(ToolEnv):
    def __init__(self, row: EnvRow, answer: Any) -> None:
        super().__init__(row, [self], tool_timeout_s=20.0)
        self.answer = answer

    name = "python"
    schema: Mapping[str, Any] = SCHEMA

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult(await self.answer())

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(1.0)


def episode(chat: Any, answer: Any, **limits: Any) -> Any:
    tokenizer, codec = chat
    chosen = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=30_000, max_retries=0, **limits)
    policy = Calling(tokenizer, "I think. " * 300)  # long enough for a thread
    return run_episode(
        ROW,
        make_env=lambda row: Env(row, answer),
        setup=EpisodeSetup(policy=policy, codec=codec, tokenizer=tokenizer, limits=chosen),
        request_id="r",
    )


@pytest.mark.slow
async def test_tools_that_hang_in_the_threads_of_the_event_loop_hold_up_no_other_episode(tiny_chat: Any) -> None:
    release, hanging = threading.Event(), threading.Semaphore(0)

    def block() -> str:
        hanging.release()
        release.wait(30.0)
        return ""

    async def hangs() -> str:
        return await asyncio.to_thread(block)

    async def answers() -> str:
        return "x" * 5_000

    threads = min(32, (os.cpu_count() or 1) + 4)  # as many as asyncio has
    hung = asyncio.gather(*(episode(tiny_chat, hangs, turn_timeout_s=4.0) for _ in range(threads + 2)))
    try:
        while hanging._value < threads:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        quick = await asyncio.gather(*(episode(tiny_chat, answers) for _ in range(4)))
        assert [played.stop_reason for played in quick] == [StopReason.ANSWERED] * 4
        assert time.monotonic() - began < 3.5, "they were held up"
        assert {played.stop_reason for played in await hung} == {StopReason.TIMEOUT}
    finally:
        release.set()


@pytest.mark.slow
async def test_a_long_observation_does_not_hold_up_the_event_loop(tiny_chat: Any) -> None:
    tokenizer, _ = tiny_chat
    text = "some output 12345 of a tool\n" * 96_000  # encoding a third of it takes as long as it may hold up

    async def answers() -> str:
        return text

    began = time.perf_counter()
    tokenizer.encode(text[: len(text) // 3])
    allowed_s = max(0.1, time.perf_counter() - began)
    playing = asyncio.ensure_future(episode(tiny_chat, answers, max_observation_tokens=3_000))
    longest, before = 0.0, time.perf_counter()
    while not playing.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    assert (await playing).stop_reason is StopReason.ANSWERED
    assert longest < allowed_s
