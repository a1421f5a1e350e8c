"""Failures that a policy causes after its first turn: trained with outcome 0, never void, never raised."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, FakeEnv, encode, episode_setup

from verl_agentic.base.deadlines import spend_code
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvError, SandboxError, ScoringError
from verl_agentic.base.types import Message, Reward, StopReason
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.sandbox.interface import BadRequestError, SpentSandboxError, check_path

SHORT = replace(LIMITS, turn_timeout_s=0.2, score_timeout_s=0.2, max_retries=1)


async def spend(code_s: float = 1.0) -> None:
    spend_code(code_s)
    await asyncio.sleep(60)


def raises(error: BaseException) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


BY_POLICY = {
    "data": raises(DataError("the tree could not be read, got a sandbox that code has filled")),
    "path": lambda: check_path("../x"),
    "size": raises(BadRequestError("too large")),
    "spent": raises(SpentSandboxError("died of memory")),
    "code": spend,
    "name": lambda: open("n" * 300),  # noqa: SIM115
    "text": lambda: "\ud800".encode(),
    "depth": raises(RecursionError()),
    "number": lambda: 10.0**400,
}
BY_MACHINE = {
    "sandbox": raises(SandboxError("the sandbox died")),
    "connection": raises(ConnectionResetError()),
    "disk": raises(OSError(errno.ENOSPC, "no space left on device")),
    "fault": raises(KeyError("x")),
    "scorer": raises(ScoringError("no pytest in the site")),
    "hang": lambda: asyncio.sleep(60),
}


class Acting(FakeEnv):
    """Acts in a step or in scoring."""

    def __init__(self, row: EnvRow, act: Callable[[], Any], *, where: str) -> None:
        super().__init__(row, step_hook=lambda _: act() if where == "step" else None)
        self._act, self._where = act, where

    async def start(self) -> tuple[Message, ...]:
        if self._where == "start" and asyncio.iscoroutine(done := self._act()):
            await done
        return await super().start()

    async def score(self, transcript: Transcript) -> Reward:
        if self._where == "score" and asyncio.iscoroutine(done := self._act()):
            await done
        return Reward(1.0)


def play(act: Callable[[], Any], *, where: str, limits: Any = SHORT) -> tuple[Episode, Sequence[FakeEnv]]:
    made: list[FakeEnv] = []

    def make_env(row: EnvRow) -> Any:
        made.append(Acting(row, act, where=where))
        return made[-1]

    setup = episode_setup(ScriptedPolicy(lambda _: "42", encode=encode, end_ids=[END]), limits)
    return asyncio.run(run_episode(ROW, make_env=make_env, setup=setup, request_id="r")), made


@pytest.mark.parametrize("what", BY_POLICY)
@pytest.mark.parametrize("where", ["step", "score"])
def test_what_the_policy_causes_is_trained_with_outcome_0_and_not_repeated(where: str, what: str) -> None:
    episode, made = play(BY_POLICY[what], where=where)
    assert episode.stop_reason is StopReason.POLICY_FAULT and not episode.is_void and episode.error
    assert (episode.reward.outcome, episode.retries, len(made), made[0].closed) == (0.0, 0, 1, 1)
    assert any(episode.trajectories[-1].response_mask) and episode.numbers()["stop/policy_fault"] == 1.0


@pytest.mark.parametrize("what", BY_MACHINE)
@pytest.mark.parametrize("where", ["step", "score"])
def test_what_an_empty_policy_would_also_meet_voids_the_episode(where: str, what: str) -> None:
    episode, _ = play(BY_MACHINE[what], where=where)
    assert episode.is_void and episode.error


def test_code_that_spends_the_whole_episode_is_the_policys() -> None:
    limits = replace(SHORT, turn_timeout_s=60.0, episode_timeout_s=0.2)
    assert play(spend, where="step", limits=limits)[0].stop_reason is StopReason.POLICY_FAULT
    hung, _ = play(lambda: asyncio.sleep(60), where="step", limits=limits)
    assert hung.stop_reason is StopReason.TIMEOUT


@pytest.mark.parametrize("error", [DataError("no such tree"), BadRequestError("../x"), ConfigError("no such key")])
def test_before_its_first_turn_nothing_is_the_policys(error: Exception) -> None:
    with pytest.raises(type(error)):
        play(raises(error), where="start")
    with pytest.raises(ConfigError):
        play(raises(ConfigError("the key is wrong")), where="score")
    assert play(raises(EnvError("down")), where="start")[0].is_void
