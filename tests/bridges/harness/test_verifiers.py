"""Tasksets of the real package `verifiers`: its loop, tools and rewards behind the gateway."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Message, StopReason, ToolCall
from verl_agentic.bridges import verifiers

pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
from verl_agentic.bridges.verifiers import served

pytestmark = pytest.mark.filterwarnings("ignore")  # what the package and its dependencies say
TASKSET = """
import verifiers.v1 as vf

__all__ = ["ProductTaskset"]


class Calculator(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "calc"

    @vf.tool
    def multiply(self, left: int, right: int) -> int:
        '''Multiplies.'''
        return left * right


class ProductData(vf.TaskData):
    answer: str


class ProductTask(vf.Task[ProductData]):
    @classmethod
    def toolsets(cls, config):
        return [Calculator(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace):
        return float(trace.last_reply == self.data.answer)


class ProductTaskset(vf.Taskset[ProductTask, vf.TasksetConfig]):
    def load(self):
        for left in range(2, 30):
            data = ProductData(system_prompt="Use the tool.", prompt=f"{left}*7?", answer=str(left * 7))
            yield ProductTask(data, self.config.task)


if __name__ == "__main__":
    Calculator.run()
"""
REWARDS = """
async def tried(task, trace) -> float:
    return 1.0

async def broken(task, trace) -> float:
    return 1 / 0
"""


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    assert not served.servers.list_lent()


@pytest.fixture
def plugged(tmp_path: Path) -> Any:
    """Returns a configuration whose tasks have one more reward."""
    (tmp_path / "more_rewards.py").write_text(REWARDS)

    def of(name: str, weight: float = 0.5) -> dict[str, Any]:
        rewards = {name: {"fn": f"{tmp_path}/more_rewards.py:{name}", "weight": weight}}
        return {"taskset": {"task": {"rewards": rewards}}}

    return of


def game() -> EnvRow:
    (row,) = verifiers.make_rows(split="train", count=1, seed=0)
    return row


async def play(stage: Any, script: Any, *, row: EnvRow | None = None, limits: Any = None, **options: Any) -> Any:
    row = row or game()
    more = {} if limits is None else {"limits": limits}
    return await stage.run(lambda row: verifiers.make_env(row, **options), script, row=row, **more)


@pytest.mark.slow
async def test_the_loop_and_the_tools_of_verifiers_play_the_episode_and_its_reward_is_the_outcome(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from verifiers.v1.runtimes.subprocess import SubprocessRuntime

    async def prepare(self: Any, script: str, env: Any, *, activate: bool = True) -> list[str]:
        await self.write("chat.py", script.encode())
        return [
            sys.executable,
            str(self.workdir / "chat.py"),
        ]  # instead of uv, which loads its packages from a registry

    monkeypatch.setattr(SubprocessRuntime, "prepare_uv_script", prepare)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "product_taskset.py").write_text(TASKSET)
    options: dict[str, Any] = {"taskset": "product_taskset", "env": {"agent": {"harness": {"id": "null"}}}}
    (row,) = verifiers.make_rows(split="test", count=1, seed=1, **options)
    assert [message.role for message in row.prompt] == ["system", "user"]

    def script(messages: Any) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", re.sub(r"\D", "", messages[-1].content))
        left = int(messages[-1].content.split("*")[0])
        return Message("assistant", "", tool_calls=(ToolCall("calc_multiply", {"left": left, "right": 7}),))

    episode, policy = await play(stage, script, row=row, **options)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error
    (trajectory,) = episode.trajectories
    assert len(episode.actions) == 2 and "Use the tool." in stage.text(trajectory.prompt_ids)
    assert episode.reward.info == {"env_return": 1.0, "right": 1.0}


@pytest.mark.parametrize(
    ("offset", "options", "outcome", "shaping"),
    [
        (0, {}, 1.0, 0.0),
        (1, {}, 0.0, 0.0),
        (1, {"partial_weight": 0.3}, 0.0, 0.3 * 0.5 / 1.5),
        (1, {"full_reward": 0.5}, 1.0, 0.0),
    ],
)
async def test_the_outcome_is_1_only_if_all_rewards_are_full_and_a_part_is_shaping(
    stage: Any, plugged: Any, offset: int, options: Any, outcome: float, shaping: float
) -> None:
    row = game()
    env = {**plugged("tried"), "agent": {"max_turns": 2}}  # a limit of verifiers, which then scores what there is
    guess = str(row.ground_truth["secret"] + offset)
    episode, policy = await play(stage, lambda messages: guess, row=row, env=env, **options)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (outcome, 2 if offset else 1), episode.error
    assert sum(episode.reward.parts.values()) == pytest.approx(shaping)
    assert episode.reward.info["tried"] == 1.0 and episode.reward.info["found"] == float(not offset)


async def test_a_budget_of_the_trainer_ends_an_episode_of_verifiers_with_outcome_0(stage: Any, limits: Any) -> None:
    episode, policy = await play(stage, lambda messages: "1001", limits=replace(limits, max_turns=2))
    policy.assert_trained(episode)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.MAX_TURNS, 0.0), episode.error


async def test_a_reward_that_raises_scores_0_or_voids_as_chosen(stage: Any, plugged: Any) -> None:
    row = game()
    guess = str(row.ground_truth["secret"])
    episode, _ = await play(stage, lambda messages: guess, row=row, env=plugged("broken"))
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.AGENT_FAILED, 0.0), episode.error
    assert "division by zero" in episode.reward.details["agent_error"]
    episode, _ = await play(
        stage, lambda messages: guess, row=row, env=plugged("broken"), harness={"on_failure": "void"}
    )
    assert episode.is_void and "division by zero" in str(episode.error)


async def test_failed_infrastructure_of_verifiers_voids_the_episode(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verifiers.v1.errors import SandboxError

    from verl_agentic.bridges.verifiers import example_taskset

    async def finalize(self: Any, trace: Any, runtime: Any) -> None:
        raise SandboxError("no disk")

    monkeypatch.setattr(example_taskset.GuessTask, "finalize", finalize)
    row = game()
    episode, _ = await play(stage, lambda messages: str(row.ground_truth["secret"]), row=row)
    assert episode.is_void and "no disk" in str(episode.error)


async def test_episodes_that_run_together_share_one_environment(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    load = served.load
    row = game()
    monkeypatch.setattr(served, "load", lambda key: loaded.append(load(key)) or loaded[-1])
    played = await asyncio.gather(
        *(play(stage, lambda messages: str(row.ground_truth["secret"]), row=row) for _ in range(8))
    )
    assert all(episode.reward.outcome == 1.0 for episode, _ in played) and len(loaded) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"taskset": "no_such_taskset_xyz"}, "no_such_taskset_xyz"),
        ({"env": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verifiers.make_rows(split="train", count=1, seed=0, **options)


def test_rows_and_options_that_fit_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="options"):
        verifiers.make_env(game(), harness={"nonsense": 1})
    with pytest.raises(DataError, match="its task"):
        verifiers.make_env(replace(game(), ground_truth="42"))
    with pytest.raises(ConfigError, match="has 1000 tasks"):
        verifiers.make_rows(split="train", count=1_001, seed=0, has_splits=False)
