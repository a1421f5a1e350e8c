"""Demonstrations of mixed quality: some follow the solution, others move at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall

from .act import SEPARATOR, Presentation
from .games import load_game

SKILLED = 0.5
"""Share of demonstrations that follow the solution."""


def demonstrator(
    row: EnvRow, *, rng: random.Random, skilled: float = SKILLED
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: the game.
        rng: source of every choice.
        skilled: probability that all moves are the best ones; otherwise all moves are random legal ones.
    """
    game, separator = load_game(row.ground_truth), f" {SEPARATOR} "
    per_turn = Presentation.of(row).actions_per_turn
    state, is_skilled = game.start(), rng.random() < skilled

    def next_turn(messages: Sequence[Message]) -> Message:
        nonlocal state
        actions: list[str] = []
        while len(actions) < per_turn and game.status(state) == "open":
            solution = game.solution(state) if is_skilled else None
            actions.append(solution[0] if solution else rng.choice(game.legal(state)))
            state = game.move(state, actions[-1]).state
        return Message("assistant", "", tool_calls=(ToolCall("act", {"action": separator.join(actions)}),))

    return next_turn
