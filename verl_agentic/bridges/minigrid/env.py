"""The environment `minigrid`: a level of BabyAI or MiniGrid, its rows and its expert."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verl_agentic.bridges.scoped_random import silence
from verl_agentic.bridges.task_rows import Split, draw_rows
from verl_agentic.bridges.text_world import TextWorldEnv, WorldTurn, demonstrator_of, expert_policy, solved_row
from verl_agentic.env import EnvRow
from verl_agentic.env_card import needs_extra, read_tasks
from verl_agentic.errors import DataError
from verl_agentic.types import Message

from .goal_search import next_step
from .instruction import instruct
from .view import describe

_ACTIONS = {"drop": 4, "toggle": 5, "pick up": 3, "go forward": 2, "turn left": 0, "turn right": 1}
"""Action -> minigrid's number. The first one does nothing at the start of a level."""
_TASKS = read_tasks(str(Path(__file__)))


class MiniGridWorld:
    """A level that the agent sees in words: seven cells ahead, three to each side (`text_world.ExpertWorld`)."""

    actions = tuple(_ACTIONS)

    def __init__(self, task: str, seed: int, *, with_expert: bool = False) -> None:
        if ":" in task:  # gymnasium would import the module before it
            raise DataError(f"a level has no module in its name, got {task!r}; use the rows of make_rows")
        self._task, self._seed = task, seed
        self._with_expert = with_expert
        self._env: Any = None
        self._bot: Any = None
        self._advice: str | None = None

    def reset(self) -> str:
        """Makes the level of the seed."""
        with needs_extra("minigrid", what="the environment minigrid"):
            import gymnasium
            from minigrid.utils.baby_ai_bot import BabyAIBot  # importing minigrid registers the levels
        silence("minigrid")
        self._env = gymnasium.make(self._task, disable_env_checker=True)
        seen, _ = self._env.reset(seed=self._seed)
        if self._with_expert:
            self._bot = BabyAIBot(self._env) if instruct(self._env.unwrapped) else None
            self._think(None)
        return f"Mission: {seen['mission']}.\nActions: {', '.join(_ACTIONS)}.\n{self._view(seen)}"

    def step(self, action: str) -> WorldTurn:
        """Executes an action."""
        name = action.strip().casefold()
        if name not in _ACTIONS:
            return WorldTurn(text=f"Error: not an action; use one of: {', '.join(_ACTIONS)}", is_valid=False)
        number = _ACTIONS[name]
        seen, reward, is_end, is_cut, _ = self._env.step(number)
        if self._with_expert and not is_end and not is_cut:
            self._think(number)
        return WorldTurn(text=self._view(seen), is_over=is_end or is_cut, is_won=is_end and reward > 0)

    def expert(self) -> str | None:
        """Returns the advice of BabyAI's bot, or the first step of a shortest way to the goal."""
        return self._advice

    def random_action(self, rng: random.Random) -> str:
        """Returns any action."""
        return rng.choice(self.actions)

    def close(self) -> None:
        """Closes the level."""
        if self._env is not None:
            self._env.close()

    def _view(self, seen: Any) -> str:
        return describe(seen["image"].tolist(), self._env.unwrapped.carrying)

    def _think(self, last_action: int | None) -> None:
        """Plans the next action; BabyAI's bot has to follow every action."""
        if self._bot is None:
            self._advice = next_step(self._env.unwrapped)
            return
        try:
            number = self._bot.replan(last_action)
        except Exception:  # the bot asserts that it knows what to do, and some levels are too hard for it
            number = None
        self._advice = next((name for name, known in _ACTIONS.items() if known == number), None)


def make_env(row: EnvRow) -> TextWorldEnv:
    """Returns the environment of one episode."""
    return TextWorldEnv(row, _world(row))


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the expert's policy for a row."""
    return expert_policy(partial(_world, row, with_expert=True))


def make_rows(*, split: Split, count: int, seed: int, task: str | None = None, max_steps: int = 64) -> list[EnvRow]:
    """Returns `count` different levels that the expert solves; the first views of the splits are disjoint.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the levels.
        task: one of `tasks.txt`; None: all of them in turn.
        max_steps: maximum actions of the expert.

    Raises:
        ConfigError: an unknown task, or hardly any level that the expert solves in so many actions.
    """
    return draw_rows(_TASKS, partial(_draw, max_steps=max_steps), task=task, split=split, count=count, seed=seed)


def _draw(task: str, number: int, *, max_steps: int) -> EnvRow | None:
    world = MiniGridWorld(task, number, with_expert=True)
    return solved_row(world, bridge="minigrid", task=task, number=number, max_steps=max_steps)


def _world(row: EnvRow, *, with_expert: bool = False) -> MiniGridWorld:
    return MiniGridWorld(row.ground_truth["task"], row.ground_truth["seed"], with_expert=with_expert)


demonstrator = demonstrator_of(partial(_world, with_expert=True))
