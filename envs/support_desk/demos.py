"""Demonstrations of mixed quality: some follow the policy, others are careless."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message

from .gold import CLOSING, to_turn
from .scenario import Step

Kind = Literal["careful", "unconfirmed", "curt", "refuses"]
MIXTURE: dict[Kind, float] = {"careful": 0.5, "unconfirmed": 0.2, "curt": 0.15, "refuses": 0.15}
"""Share of each kind."""


def demonstrator(
    row: EnvRow, *, rng: random.Random, kind: Kind | None = None
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: a task.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`. `careful` follows the solution, `unconfirmed` changes
            without asking, `curt` leaves out all that must be told, and `refuses` refuses everything.
    """
    chosen = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    steps = _choose_steps(json.loads(row.extra["solution"]), chosen)

    def next_turn(messages: Sequence[Message]) -> Message:
        played = sum(message.role == "assistant" for message in messages[len(row.prompt) :])
        return to_turn(steps[played] if played < len(steps) else CLOSING)

    return next_turn


def _choose_steps(solution: list[Step], kind: Kind) -> list[Step]:
    if kind == "refuses":
        return ["I am sorry, I cannot do that."]
    if kind == "unconfirmed":
        return [step for step in solution if not (isinstance(step, str) and "confirm" in step)]
    if kind == "curt":
        is_told = [isinstance(step, str) and "?" not in step for step in solution]
        return ["It is done." if is_text else step for step, is_text in zip(solution, is_told, strict=True)]
    return solution
