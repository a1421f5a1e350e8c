"""The environment `gymnasium`: a toy problem in words, its rows and its solution."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_agentic.base.env_card import needs_extra, read_tasks
from verl_agentic.bridges.text_world import WorldTurn
from verl_agentic.bridges.text_world_package import TextWorldPackage

from .solution import next_action
from .toy_texts import TOY_TEXTS

_TASKS = read_tasks(str(Path(__file__)))


class ToyTextWorld:
    """A toy problem (`text_world.ExpertWorld`)."""

    def __init__(self, task: str, seed: int) -> None:
        self._task, self._seed = task, seed
        self._words = TOY_TEXTS[task]
        self._env: Any = None

    @property
    def actions(self) -> Sequence[str]:
        """The names of the actions."""
        return tuple(self._words.actions)

    def reset(self) -> str:
        """Makes the problem of the seed."""
        with needs_extra("gymnasium", what="the environment gymnasium"):
            import gymnasium
        self._env = gymnasium.make(self._task, disable_env_checker=True, **self._words.options(self._seed))
        self._env.reset(seed=self._seed)
        problem = self._env.unwrapped
        self._words.prepare(problem, self._seed)
        return f"{self._words.rules(problem)}\nActions: {', '.join(self.actions)}.\n{self._words.state(problem)}"

    def step(self, action: str) -> WorldTurn:
        """Executes an action."""
        name = action.strip().casefold()
        if name not in self._words.actions:
            return WorldTurn(text=f"Error: not an action; use one of: {', '.join(self.actions)}", is_valid=False)
        _, reward, is_end, is_cut, _ = self._env.step(self._words.actions[name])
        return WorldTurn(
            text=self._words.state(self._env.unwrapped),
            is_over=is_end or is_cut,
            is_won=is_end and self._words.is_won(float(reward)),
        )

    def expert(self) -> str | None:
        """Returns the first action of a shortest solution."""
        number = next_action(self._env.unwrapped)
        return next((name for name, action_number in self._words.actions.items() if action_number == number), None)

    def random_action(self, rng: random.Random) -> str:
        """Returns any action."""
        return rng.choice(self.actions)

    def close(self) -> None:
        """Closes the problem."""
        if self._env is not None:
            self._env.close()


_PACKAGE = TextWorldPackage("gymnasium", tasks=_TASKS, make_world=ToyTextWorld)
make_env, make_rows, gold, demonstrator = _PACKAGE.make_env, _PACKAGE.make_rows, _PACKAGE.gold, _PACKAGE.demonstrator
