"""The functions of a package around a text environment of the user's own that has gymnasium's interface.

`verl-agentic env new NAME --from gymnasium:ID` writes such a package.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.bridges.task_rows import Split, draw_rows
from verl_agentic.bridges.text_world import TextWorldEnv, WorldTurn, demonstrator_of, expert_policy, solved_row

_MAX_STEPS = 64  # maximum actions of an expert


@dataclass(frozen=True, kw_only=True)
class OwnPackage:
    """`make_env`, `make_rows` and, with an expert, `gold` and `demonstrator` of a package."""

    name: str
    make: Callable[[], Any]
    """Makes an environment with gymnasium's interface."""
    actions: Mapping[str, Any] | None
    """Text -> action of the environment; None: the texts of the policy are the actions."""
    show: Callable[[Any], str] = str
    """Returns an observation as text."""
    instruction: str = ""
    """The task in words, before the first observation."""
    full_reward: float = 1.0
    """Sum of the rewards from which on an episode that has ended is solved."""
    expert: Callable[[Any], Any] | None = None
    """Unwrapped environment -> the next action of a solution; None where there is none."""
    is_hidden: bool = False
    """Whether the first observation does not show what the seed chose, such as a secret."""

    @property
    def gold(self) -> Callable[[EnvRow], Callable[[Sequence[Message]], Message]] | None:
        """The expert's policy of a row."""
        return None if self.expert is None else lambda row: expert_policy(lambda: self._make_world(row))

    @property
    def demonstrator(self) -> Callable[..., Callable[[Sequence[Message]], Message]] | None:
        """Policies of mixed quality, see `expert_policy`."""
        return None if self.expert is None else demonstrator_of(self._make_world)

    def make_env(self, row: EnvRow) -> TextWorldEnv:
        """Returns the environment of one episode."""
        return TextWorldEnv(row, self._make_world(row))

    def make_rows(self, *, split: Split, count: int, seed: int) -> list[EnvRow]:
        """Returns `count` different rows; with an expert, only such as it solves.

        Raises:
            ConfigError: there are not so many.
        """
        return draw_rows(
            [self.name], self._draw_row, task=None, split=split, count=count, seed=seed, is_hidden=self.is_hidden
        )

    def _draw_row(self, task: str, number: int) -> EnvRow | None:
        world = OwnWorld(self, number)
        if self.expert is not None:
            return solved_row(world, bridge=self.name, task=task, number=number, max_steps=_MAX_STEPS)
        try:
            prompt = (Message("user", world.reset()),)
        finally:
            world.close()
        extra = {"task_id": f"{task}-{number}"}
        return EnvRow(prompt=prompt, ground_truth={"task": task, "seed": number}, data_source=self.name, extra=extra)

    def _make_world(self, row: EnvRow) -> OwnWorld:
        return OwnWorld(self, row.ground_truth["seed"])


class OwnWorld:
    """The environment of one episode (`text_world.ExpertWorld`)."""

    def __init__(self, package: OwnPackage, seed: int) -> None:
        self._package, self._seed = package, seed
        self._env: Any = None
        self._return = 0.0

    @property
    def actions(self) -> Sequence[str] | None:
        """The names of the actions; None for free text."""
        return None if self._package.actions is None else tuple(self._package.actions)

    def reset(self) -> str:
        """Makes the environment, and resets it with the seed of the row."""
        self._env = self._package.make()
        observation, _ = self._env.reset(seed=self._seed)
        names = "" if self.actions is None else f"Actions: {', '.join(self.actions)}."
        return "\n".join(part for part in (self._package.instruction, names, self._package.show(observation)) if part)

    def step(self, action: str) -> WorldTurn:
        """Executes an action."""
        named_actions, name = self._package.actions, action.strip()
        if named_actions is not None and name not in named_actions:
            return WorldTurn(text=f"Error: not an action; use one of: {', '.join(named_actions)}", is_valid=False)
        raw_action = action if named_actions is None else named_actions[name]
        observation, reward, is_end, is_cut, _ = self._env.step(raw_action)
        self._return += float(reward)
        return WorldTurn(
            text=self._package.show(observation),
            is_over=bool(is_end or is_cut),
            is_won=self._return >= self._package.full_reward - 1e-9,
            info={"env_return": self._return},
        )

    def expert(self) -> str | None:
        """Returns the next action of the user's expert, by its name."""
        action = None if self._package.expert is None else self._package.expert(self._env.unwrapped)
        if action is None or self._package.actions is None:
            return action
        return next(name for name, raw_action in self._package.actions.items() if raw_action == action)

    def random_action(self, rng: random.Random) -> str:
        """Returns any action; for free text, a sample of the action space."""
        if self.actions is not None:
            return rng.choice(self.actions)
        self._env.action_space.seed(rng.randrange(2**31))
        return str(self._env.action_space.sample())

    def close(self) -> None:
        """Closes the environment."""
        if self._env is not None:
            self._env.close()
