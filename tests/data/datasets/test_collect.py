"""Playing many rows: in order, no more than allowed at once, and repeatably with a real model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes import END, ROW, FakeEnv, encode, episode_setup

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import run_episodes
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.evaluate.local_model import LocalModel


def policy(index: int, row: EnvRow) -> EpisodeSetup:
    async def text(messages: Any) -> str:
        await asyncio.sleep(0.02 / (index + 1))  # later rows end first
        return f"{index}"

    return episode_setup(ScriptedPolicy(text, encode=encode, end_ids=[END]))


async def play(count: int, **options: Any) -> list[Any]:
    options = {"make_env": FakeEnv, "setup_for": policy, **options}
    return await run_episodes([ROW] * count, **options)


async def test_episodes_come_back_in_the_order_of_the_rows_whichever_ends_first() -> None:
    ended: list[str] = []
    episodes = await play(5, on_episode=lambda e: ended.append(e.actions[0].content))
    assert [e.actions[0].content for e in episodes] == ["0", "1", "2", "3", "4"]
    assert sorted(ended) == ["0", "1", "2", "3", "4"] != ended


async def test_no_more_episodes_than_allowed_are_under_way_at_once() -> None:
    running, most = 0, 0

    class Counting(FakeEnv):
        async def start(self) -> tuple[Message, ...]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            return await super().start()

        async def close(self) -> None:
            nonlocal running
            running -= 1

    await play(9, make_env=Counting, max_concurrent=3)
    assert (most, running) == (3, 0)


async def test_what_no_retry_can_help_ends_the_siblings_too_and_closes_their_environments() -> None:
    envs: list[FakeEnv] = []

    def make(row: EnvRow) -> FakeEnv:
        if len(envs) == 2:
            raise ConfigError("no such environment, got x; name one")
        envs.append(FakeEnv(row))
        return envs[-1]

    def forever(index: int, row: EnvRow) -> EpisodeSetup:
        async def text(messages: Any) -> str:
            await asyncio.sleep(3600)
            return ""

        return episode_setup(ScriptedPolicy(text, encode=encode, end_ids=[END]))

    with pytest.raises(ConfigError, match="no such environment"):
        await asyncio.wait_for(play(3, make_env=make, setup_for=forever), 5)
    assert [env.closed for env in envs] == [1, 1]


def test_a_player_repeats_itself_with_the_same_seed(tiny_model: Path, tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, codec = tiny_chat
    limits = EpisodeLimits(max_response_tokens=6, max_context_tokens=100)
    model = LocalModel(model_path=tiny_model, tokenizer=tokenizer, codec=codec, make_env=FakeEnv, limits=limits)

    def ids(**how: Any) -> list[list[int]]:
        return [e.trajectories[0].response_ids for e in model.run([ROW, ROW], **how)]

    sampled = ids(temperature=1.0, seed=1)
    assert sampled == ids(temperature=1.0, seed=1)
    assert sampled[0] != sampled[1], "rows of one evaluation must not share their noise"
    assert sampled != ids(temperature=1.0, seed=2)
    greedy = model.run([ROW, ROW], temperature=0.0)
    assert greedy[0].trajectories[0].response_ids == greedy[1].trajectories[0].response_ids
