"""Shared parts of bridges to servers of other projects: the outcome of foreign rewards, and numbered rows."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import Message, Reward

RewardOf = Literal["sum", "last", "max"]
_TEST_PART = 5  # a fifth of all numbers is for tests


class RewardConfig(Settings):
    """Rule that turns the rewards of a foreign environment into an outcome: 1 only for complete success."""

    reward_of: RewardOf = "sum"
    """The return of an episode: the sum, the last or the largest of the rewards of its steps."""
    full_reward: float = 1.0
    """Return from which on the task is solved completely."""
    partial_weight: float = setting(0.0, min=0, max=1)
    """Shaping of an episode that is not solved: this times its share of `full_reward`."""

    def check_together(self) -> None:
        if self.full_reward <= 0:
            raise ConfigError(f"full_reward must be positive, got {self.full_reward}; see the environment's rewards")


@dataclass
class RewardTrack:
    """The rewards of one episode."""

    config: RewardConfig
    rewards: list[float] = field(default_factory=list)

    def add(self, reward: Any) -> None:
        """Adds the reward of a step; None is none. Raises EnvError if it is no number."""
        if reward is None:
            return
        try:
            self.rewards.append(float(reward))
        except (TypeError, ValueError) as cause:
            raise EnvError(f"the environment must give rewards that are numbers, got {reward!r}; fix it") from cause

    def reward(self, **details: Any) -> Reward:
        """Returns the outcome, with the return as info and perhaps as shaping."""
        kind = {"sum": sum, "last": lambda rewards: rewards[-1], "max": max}[self.config.reward_of]
        total = float(kind(self.rewards)) if self.rewards else 0.0
        solved = total >= self.config.full_reward - 1e-9
        share = min(max(total / self.config.full_reward, 0.0), 1.0)
        parts = {"partial": self.config.partial_weight * share} if self.config.partial_weight and not solved else {}
        return Reward(float(solved), parts=parts, info={"env_return": total}, details=details)


def draw_numbers(*, split: str, count: int, seed: int, limit: int) -> list[int]:
    """Returns `count` different numbers below `limit`; those of `train` and `test` are never the same.

    Raises:
        ConfigError: an unknown split, or there are not so many numbers.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be 'train' or 'test', got {split!r}")
    is_test = split == "test"
    start, step = (0, _TEST_PART) if is_test else (1, 1)
    fitting = len(range(0, limit, _TEST_PART)) if is_test else limit - len(range(0, limit, _TEST_PART))
    if count > fitting:
        raise ConfigError(f"there are {fitting} numbers for {split} below {limit}, got count={count}; lower it")
    rng, numbers = random.Random(f"{split}/{seed}"), dict[int, None]()
    while len(numbers) < count:
        number = rng.randrange(start, limit, step)
        if is_test == (number % _TEST_PART == 0):
            numbers[number] = None
    return list(numbers)


def with_observation(row: EnvRow, text: str) -> tuple[Message, ...]:
    """Returns the prompt of a row, with the first observation at the end of its last user message."""
    if row.prompt and row.prompt[-1].role == "user":
        last = row.prompt[-1]
        return (*row.prompt[:-1], replace(last, content=f"{last.content}\n\n{text}", quoted=text))
    return (*row.prompt, Message("user", text, quoted=text))
