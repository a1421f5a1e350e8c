"""The environment `minigrid`: a level of BabyAI or MiniGrid, its rows and its expert."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

from verl_agentic.base.env_card import needs_extra, read_tasks
from verl_agentic.base.errors import DataError
from verl_agentic.bridges.scoped_random import silence
from verl_agentic.bridges.text_world import WorldTurn
from verl_agentic.bridges.text_world_package import TextWorldPackage

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
        observation, _ = self._env.reset(seed=self._seed)
        if self._with_expert:
            self._bot = BabyAIBot(self._env) if instruct(self._env.unwrapped) else None
            self._plan_action(None)
        return (
            f"Mission: {observation['mission']}.\nActions: {', '.join(_ACTIONS)}.\n{self._describe_view(observation)}"
        )

    def step(self, action: str) -> WorldTurn:
        """Executes an action."""
        name = action.strip().casefold()
        if name not in _ACTIONS:
            return WorldTurn(text=f"Error: not an action; use one of: {', '.join(_ACTIONS)}", is_valid=False)
        number = _ACTIONS[name]
        observation, reward, is_end, is_cut, _ = self._env.step(number)
        if self._with_expert and not is_end and not is_cut:
            self._plan_action(number)
        return WorldTurn(text=self._describe_view(observation), is_over=is_end or is_cut, is_won=is_end and reward > 0)

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

    def _describe_view(self, observation: Any) -> str:
        return describe(observation["image"].tolist(), self._env.unwrapped.carrying)

    def _plan_action(self, last_action: int | None) -> None:
        """Plans the next action; BabyAI's bot has to follow every action."""
        if self._bot is None:
            self._advice = next_step(self._env.unwrapped)
            return
        try:
            number = self._bot.replan(last_action)
        except Exception:  # the bot asserts that it knows what to do, and some levels are too hard for it
            number = None
        self._advice = next((name for name, action_number in _ACTIONS.items() if action_number == number), None)


_PACKAGE = TextWorldPackage(
    "minigrid", tasks=_TASKS, make_world=MiniGridWorld, make_expert=partial(MiniGridWorld, with_expert=True)
)
make_env, make_rows, gold, demonstrator = _PACKAGE.make_env, _PACKAGE.make_rows, _PACKAGE.gold, _PACKAGE.demonstrator
