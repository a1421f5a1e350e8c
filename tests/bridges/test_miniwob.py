"""MiniWoB++ in a real Chromium: solutions solve, the policy's mistakes are observations, nothing stays open."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Action, Message, Observation, StopReason, ToolCall
from verl_agentic.bridges.miniwob.gold import SCRIPTS, gold
from verl_agentic.bridges.web_env import WebEnv
from verl_agentic.episode.env_package import load_env_package

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("miniwob") is None or not any(map(shutil.which, BROWSERS)),
    reason="miniwob or a Chromium is not installed",
)
PACKAGE = load_env_package("miniwob")


def rows(*, task: str | None = None, split: str = "train", count: int = 1, seed: int = 0) -> list[EnvRow]:
    assert PACKAGE.make_rows is not None
    return PACKAGE.make_rows(split=split, count=count, seed=seed, task=task)


async def act(env: WebEnv, *calls: ToolCall, turn: int = 0) -> Observation:
    return await env.step(Action(turn=turn, text="", content="", tool_calls=calls))


async def outcome(env: WebEnv) -> float:
    return (await env.score(Transcript(messages=(), actions=(), stop_reason=StopReason.ENV_DONE))).outcome


async def solve(row: EnvRow) -> float:
    env, script = PACKAGE.make_env(row), gold(row)
    try:
        messages: list[Message] = list(await env.start())
        for turn in range(4):
            said = script(messages)
            observation = await act(env, *said.tool_calls, turn=turn)  # pyright: ignore[reportArgumentType]
            messages += [said, *observation.messages]
            if observation.stop is not None:
                break
        return await outcome(env)  # pyright: ignore[reportArgumentType]
    finally:
        await env.close()


def test_every_task_that_is_listed_has_a_page_and_a_solution() -> None:
    assert PACKAGE.card is not None and set(PACKAGE.card.tasks) == set(SCRIPTS)
    assert {row.extra["task"] for row in rows(count=len(SCRIPTS)) if PACKAGE.make_env(row)} == set(SCRIPTS)


async def test_solutions_solve_pages_side_by_side() -> None:
    some = [row for task in ("click-test-2", "login-user", "read-table", "choose-list") for row in rows(task=task)]
    assert await asyncio.gather(*map(solve, some)) == [1.0] * len(some)


@pytest.mark.nightly
async def test_the_solution_of_every_task_solves_ten_pages() -> None:
    failed = [row.extra for row in rows(count=10 * len(SCRIPTS), seed=1) if await solve(row) < 1]
    assert not failed


async def test_equal_seeds_give_equal_pages_and_splits_share_none() -> None:
    async def first_page(row: EnvRow) -> str:
        env = PACKAGE.make_env(row)
        try:
            return (await env.start())[-1].content
        finally:
            await env.close()

    (one,), (two,) = rows(task="enter-text"), rows(task="enter-text", seed=1)
    assert await first_page(one) == await first_page(one) != await first_page(two)
    seeds = {split: {row.extra["seed"] for row in rows(split=split, count=200)} for split in ("train", "test")}
    assert not seeds["train"] & seeds["test"]


async def test_mistakes_are_observations_and_the_page_ends_the_episode() -> None:
    (row,) = rows(task="click-test-2")
    env = PACKAGE.make_env(row)
    assert isinstance(env, WebEnv)
    try:
        tree = (await env.start())[-1].content
        refs = {name: tree.split(f'button "{name}" [ref=')[1].split("]")[0] for name in ("ONE", "TWO")}
        wrong = (
            ("select", {"ref": refs["ONE"], "option": "x"}),
            ("press", {"key": "NoKey"}),
            ("click", {"ref": "zz'"}),
        )
        for name, arguments in wrong:
            observation = await act(env, ToolCall(name, arguments))
            assert observation.messages[0].is_error and observation.stop is None, name
        both = [ToolCall("click", {"ref": refs[name]}) for name in ("TWO", "ONE")]
        observation = await act(env, *both)
        assert observation.stop is StopReason.ENV_DONE
        assert "the task is over" in observation.messages[1].content  # the second click comes too late
        assert await outcome(env) == 0.0
    finally:
        await env.close()


def test_wrong_rows_and_tasks_are_named() -> None:
    with pytest.raises(ConfigError, match="'click-test'"):
        rows(task="click-tset")
    with pytest.raises(DataError, match="'nothing'"):
        PACKAGE.make_env(EnvRow(prompt=(), extra={"task": "nothing", "seed": 1}))
