"""Demonstrations of mixed quality: some follow the chain to its end, others stop early or guess."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message

from .gold import final, gold, to_call
from .world import make_world

DemoKind = Literal["careful", "stops_early", "guesses"]
MIXTURE: dict[DemoKind, float] = {"careful": 0.5, "stops_early": 0.25, "guesses": 0.25}
"""Share of each kind."""


def demonstrator(
    row: EnvRow, *, rng: random.Random, kind: DemoKind | None = None
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: a question about the generated world.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`. `stops_early` answers with the first page that it has
            opened, `guesses` with a random name.
    """
    chosen = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    if chosen == "careful":
        return gold(row)
    steps = json.loads(row.extra["steps"])[:2] if chosen == "stops_early" else []
    answer = steps[-1][1] if steps else rng.choice(list(make_world().things))

    def next_turn(messages: Sequence[Message]) -> Message:
        played = sum(message.role == "assistant" for message in messages[len(row.prompt) :])
        return to_call(*steps[played]) if played < len(steps) else final(answer)

    return next_turn
