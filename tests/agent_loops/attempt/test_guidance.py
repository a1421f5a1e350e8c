"""Guidance: a failed episode is played again with what the environment says about the failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes import END, LIMITS, ROW, FakeEnv, decode, encode, episode_setup

from verl_agentic.base.env import Transcript
from verl_agentic.base.types import Message
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode


class Guiding(FakeEnv):
    async def guidance(self, transcript: Transcript) -> str:
        assert self.closed == 0, "the environment still lives"
        return f"Not {transcript.final_answer}: it is six times seven."


class Unhelpful(FakeEnv):
    async def guidance(self, transcript: Transcript) -> str:
        return ""


class Failing(FakeEnv):
    async def guidance(self, transcript: Transcript) -> str:
        raise OSError("disk gone")


def next_text(messages: Sequence[Message]) -> str:
    return "42" if "six times seven" in messages[0].content else "41"


async def play(kind: type[FakeEnv], *, guidance: bool = True) -> tuple[Episode, list[FakeEnv]]:
    envs: list[FakeEnv] = []

    def make(row: object) -> FakeEnv:
        envs.append(kind(ROW))
        return envs[-1]

    policy = ScriptedPolicy(next_text, encode=encode, end_ids=[END])
    chosen = episode_setup(policy, replace(LIMITS, max_retries=0), guidance=guidance)
    return await run_episode(ROW, make_env=make, setup=chosen, request_id="r"), envs


async def test_the_second_attempt_is_what_is_trained_with_the_prompt_that_the_policy_saw() -> None:
    episode, envs = await play(Guiding)
    (row,) = episode.trajectories
    assert decode(row.prompt_ids) == "<user>question\n\nNot 41: it is six times seven.<assistant>"
    assert decode(row.response_ids) == "42$" and row.response_mask == [1, 1, 1]
    numbers = episode.numbers()
    assert (numbers["acc"], numbers["guided"], numbers["first_outcome"]) == (1.0, 1.0, 0.0)
    assert [env.closed for env in envs] == [1, 1]


@pytest.mark.parametrize(
    ("kind", "guidance"), [(Guiding, False), (Unhelpful, True), (FakeEnv, True)], ids=["off", "nothing to say", "none"]
)
async def test_without_guidance_a_failure_stays_one(kind: type[FakeEnv], guidance: bool) -> None:
    episode, envs = await play(kind, guidance=guidance)
    assert (episode.reward.outcome, episode.numbers()["guided"], len(envs)) == (0.0, 0.0, 1)


async def test_guidance_that_fails_is_a_failure_of_the_environment() -> None:
    episode, _ = await play(Failing)
    assert episode.is_void and "disk gone" in (episode.error or "")


async def test_an_instruction_stands_in_the_prompt_of_the_episode_and_is_not_trained() -> None:
    policy = ScriptedPolicy(lambda messages: "42", encode=encode, end_ids=[END])
    chosen = episode_setup(policy, replace(LIMITS, max_retries=0), instruction="Think twice.")
    episode = await run_episode(ROW, make_env=FakeEnv, setup=chosen, request_id="r")
    (row,) = episode.trajectories
    assert decode(row.prompt_ids) == "<user>question\n\nThink twice.<assistant>"
    assert decode(row.response_ids) == "42$" and episode.reward.outcome == 1.0
