"""Demonstrations of mixed quality: some follow the solution, with slips and wrong keys; others move at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from verl_agentic import EnvRow, Message, ToolCall

from .act import SEPARATOR, Presentation
from .games import load_game
from .games.game import Game
from .games.quest import Quest

SKILLED = 0.5
"""Share of demonstrations that follow the solution."""
_TAKE = "take "


def demonstrator(
    row: EnvRow, *, rng: random.Random, skilled: float = SKILLED, slip: float = 0.0, wrong_key: float = 0.0
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: the game.
        rng: source of every choice.
        skilled: probability that all moves are the best ones; otherwise all moves are random legal ones.
        slip: probability of a random legal move in place of a best one, for each move. The next best move follows from
            where it led.
        wrong_key: probability that a skilled demonstration takes another key for the one that it needs, where several
            lie together, and goes on as if it had the right one. At the lock its moves become random. Quests only.
    """
    game, separator = load_game(row.ground_truth), f" {SEPARATOR} "
    per_turn = Presentation.of(row).actions_per_turn
    state, is_skilled = game.start(), rng.random() < skilled
    planner = _Planner(game, rng, slip=slip, wrong_key=wrong_key)

    def next_turn(messages: Sequence[Message]) -> Message:
        nonlocal state
        actions: list[str] = []
        while len(actions) < per_turn and game.status(state) == "open":
            best = planner.best(state) if is_skilled else None
            actions.append(rng.choice(game.legal(state)) if best is None else best)
            state = game.move(state, actions[-1]).state
        return Message("assistant", "", tool_calls=(ToolCall("act", {"action": separator.join(actions)}),))

    return next_turn


class _Planner:
    """Chooses the best move, and makes the mistakes of a skilled demonstration."""

    def __init__(self, game: Game[Any], rng: random.Random, *, slip: float, wrong_key: float) -> None:
        self._game, self._rng, self._slip = game, rng, slip
        self._is_careless = bool(wrong_key) and rng.random() < wrong_key
        self._missing: str | None = None
        """The key that it believes to carry."""

    def best(self, state: Any) -> str | None:
        """Returns the move; None for a random one."""
        if self._slip and self._rng.random() < self._slip:
            return None
        game, believed = self._game, state
        if self._missing is not None and isinstance(game, Quest):
            believed = game.with_carried(state, self._missing)
        move = next(iter(game.solution(believed)), None)
        if move is None or move not in game.legal(state):
            return None
        if self._is_careless and self._missing is None and isinstance(game, Quest) and move.startswith(_TAKE):
            key = move.removeprefix(_TAKE)
            others = game.other_keys(state, key)
            if others:
                self._missing = key
                return f"{_TAKE}{self._rng.choice(others)}"
        return move
