"""Demonstrations of mixed quality: some buy what is asked for, others are hasty."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message

from .gold import act, gold
from .store import BUY

Kind = Literal["careful", "forgets_options", "first_result", "wanders"]
MIXTURE: dict[Kind, float] = {"careful": 0.5, "forgets_options": 0.2, "first_result": 0.2, "wanders": 0.1}
"""Share of each kind."""
_RESULT = re.compile(r"^\[([A-Z0-9]+)\] ", re.MULTILINE)


def demonstrator(
    row: EnvRow, *, rng: random.Random, kind: Kind | None = None
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: an instruction.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`. `careful` follows the solution, `forgets_options` buys
            its product without options, `first_result` the first result, and `wanders` ends without a purchase.
    """
    chosen = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    solution = gold(row)
    asin = str(row.ground_truth).partition('"asin": "')[2].partition('"')[0]

    def next_turn(messages: Sequence[Message]) -> Message:
        turn = solution(messages)
        page = messages[-1].content
        if chosen == "careful" or len(messages) == len(row.prompt):
            return turn
        if chosen == "wanders":
            return Message("assistant", "I found nothing that fits.")
        if "[Buy now]" in page:
            return act(f"click[{BUY}]")
        first = _RESULT.search(page)
        if chosen == "first_result" and first is not None and first[1] != asin:
            return act(f"click[{first[1].lower()}]")
        return turn

    return next_turn
