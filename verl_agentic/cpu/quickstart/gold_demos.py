"""Demonstrations of mixed quality for an environment that has solutions only."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message

Gold = Callable[[EnvRow], Callable[[Sequence[Message]], Message]]


def demonstrator_of(gold: Gold, rows: Sequence[EnvRow]) -> Callable[..., Callable[[Sequence[Message]], Message]]:
    """Returns a demonstrator that plays the solution of its row, or of another row, which is mostly wrong there.

    Args:
        gold: that of the environment.
        rows: whose solutions are played.
    """

    def demonstrator(
        row: EnvRow, *, rng: random.Random, skilled: float = 0.5
    ) -> Callable[[Sequence[Message]], Message]:
        """`skilled`: probability of the row's own solution."""
        if rng.random() < skilled:
            return gold(row)
        script = gold(rng.choice(rows))

        def next_message(messages: Sequence[Message]) -> Message:
            try:
                return script(messages)
            except Exception:  # it cannot read the observations of another task
                return Message("assistant", "I do not know.")

        return next_message

    return demonstrator
