"""Signs of reward hacking in an episode, counted by the function at `COUNTER`.

The function is an address, because it reads programs and shell commands, which is no task of the episode loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_agentic.base.registry import load_address
from verl_agentic.base.types import Message
from verl_agentic.rewards.sample import Turn

COUNTER = "verl_agentic.observe.hacking.count:hacking_counts"
PREFIX = "hacking/"
"""Begins the names of the counts among an episode's numbers."""


def count_signs(
    prompt: Sequence[Message], turns: Sequence[Turn], final_answer: str | None, *, reported: Mapping[str, Any]
) -> dict[str, float]:
    """Returns the counts of an episode, with the same keys for every episode.

    Args:
        prompt: messages before the first turn.
        turns: turns of the policy; none of a void episode.
        final_answer: text of the answer.
        reported: information of the environment on the reward.
    """
    return _load_counter()(prompt, turns, final_answer, reported=reported)


def signs_in(numbers: Mapping[str, float]) -> list[str]:
    """Returns the kinds of signs that an episode's numbers count."""
    names = (name for name, count in numbers.items() if name.startswith(PREFIX) and count)
    return [name.removeprefix(PREFIX) for name in names if name != f"{PREFIX}any"]


@functools.cache
def _load_counter() -> Callable[..., dict[str, float]]:
    return load_address(COUNTER, what="counter of signs of reward hacking")
