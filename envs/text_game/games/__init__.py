"""The games, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic import DataError
from verl_agentic.base.errors import boundary

from .bandit import Bandit
from .frozen_lake import FrozenLake
from .game import Game
from .quest import Quest
from .sokoban import Sokoban

GAMES: Mapping[str, type[Game[Any]]] = {
    "frozen_lake": FrozenLake,
    "sokoban": Sokoban,
    "quest": Quest,
    "bandit": Bandit,
}


def load_game(spec: Any) -> Game[Any]:
    """Returns the game of a row's ground truth.

    Raises:
        DataError: it describes no game.
    """
    name = spec.get("game") if isinstance(spec, Mapping) else None
    if not isinstance(name, str) or name not in GAMES:
        raise DataError(f"the ground truth names no game, got {spec!r}; set its `game` to one of {sorted(GAMES)}")
    with boundary(DataError, f"reading a {name} from the ground truth {spec!r}"):
        return GAMES[name].from_spec(spec)
