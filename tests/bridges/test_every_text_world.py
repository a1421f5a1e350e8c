"""Every task of the text worlds validates; a few of them in the fast tests."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.base.errors import MissingDependencyError
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.evaluate.env_validation.validate_env import validate

_PACKAGES = ("gem", "gymnasium", "household", "minigrid", "reasoning_gym", "textarena")
_TASKS = {name: card.tasks for name in _PACKAGES if (card := load_env_package(name).card) is not None}
_IDS = [f"{name}/{task}" for name, tasks in _TASKS.items() for task in tasks]
_FAST = (
    "gem/GuessTheNumber-v0-easy", "gymnasium/Blackjack-v1", "gymnasium/FrozenLake-v1", "household/heat",
    "minigrid/BabyAI-GoToLocal-v0", "minigrid/MiniGrid-DoorKey-5x5-v0", "reasoning_gym/gsm_symbolic",
    "reasoning_gym/knights_knaves", "textarena/LightsOut-v0", "textarena/TicTacToe-v0",
)  # fmt: skip


async def _validate(env_id: str, tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, codec = tiny_chat
    package = load_env_package(env_id)
    assert package.make_rows is not None
    try:
        rows = package.make_rows(split="test", count=1, seed=0)
    except MissingDependencyError as missing:
        pytest.skip(str(missing))
    found = await validate(package, rows, codec=codec, tokenizer=tokenizer)
    assert found.ok, [(check.check, check.found) for check in found.checks if check.status != "ok"]


@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("env_id", _FAST)
async def test_some_tasks_of_every_bridge_validate(env_id: str, tiny_chat: tuple[Any, Any]) -> None:
    await _validate(env_id, tiny_chat)


@pytest.mark.nightly
@pytest.mark.parametrize("env_id", [env_id for env_id in _IDS if env_id not in _FAST])
async def test_every_task_of_every_bridge_validates(env_id: str, tiny_chat: tuple[Any, Any]) -> None:
    await _validate(env_id, tiny_chat)
