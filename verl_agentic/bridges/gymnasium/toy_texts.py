"""Texts of the toy problems of gymnasium: rules, states, actions, and the condition of success."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ToyText:
    """The words of a problem."""

    actions: Mapping[str, int]
    """Action -> its number."""
    rules: Callable[[Any], str]
    """Rules and map, from the unwrapped problem after its reset."""
    state: Callable[[Any], str]
    """The state, from the unwrapped problem."""
    is_won: Callable[[float], bool]
    """Whether an episode that ended with this reward is solved."""
    options: Callable[[int], dict[str, Any]] = lambda seed: {}
    """Arguments of `gymnasium.make` for a seed."""
    prepare: Callable[[Any, int], None] = lambda problem, seed: None
    """Changes the unwrapped problem after its reset."""


def _describe_cell(problem: Any, columns: int) -> str:
    return f"You are in row {problem.s // columns}, column {problem.s % columns}."


def _lake_map(size: int) -> Callable[[int], dict[str, Any]]:
    def options(seed: int) -> dict[str, Any]:
        from gymnasium.envs.toy_text.frozen_lake import generate_random_map

        return {"desc": generate_random_map(size=size, seed=seed)}

    return options


def _lake_rules(problem: Any) -> str:
    rows = "\n".join(b"".join(row).decode() for row in problem.desc)
    return (
        "Cross the frozen lake to the goal without falling into a hole. The ice is slippery: you may move to the side "
        f"of where you wanted to go.\nMap, row 0 first; S start, F ice, H hole, G goal:\n{rows}"
    )


def _cliff_start(problem: Any, seed: int) -> None:
    problem.s = random.Random(seed).randrange(3 * 12)  # gymnasium always starts in row 3, column 0


def _cliff_rules(problem: Any) -> str:
    ice = " The ground is slippery: you may move to the side of where you wanted to go." if problem.is_slippery else ""
    return (
        "Walk on a grid of rows 0 to 3 and columns 0 to 11 to row 3, column 11. Columns 1 to 10 of row 3 are a cliff: "
        f"whoever falls starts again in row 3, column 0.{ice}"
    )


def _taxi_rules(problem: Any) -> str:
    rows = "\n".join(b"".join(row).decode() for row in problem.desc)
    return (
        "Drive the taxi to the passenger, pick the passenger up, drive to the destination, and drop the passenger off. "
        f"Map, rows 0 to 4 between the borders; | is a wall, : is none:\n{rows}"
    )


def _taxi_state(problem: Any) -> str:
    row, column, passenger, destination = problem.decode(problem.s)
    stops = [
        f"{name} (row {location[0]}, column {location[1]})" for name, location in zip("RGYB", problem.locs, strict=True)
    ]
    place = "in the taxi" if passenger == len(stops) else f"at {stops[passenger]}"
    return f"Taxi: row {row}, column {column}. Passenger: {place}. Destination: {stops[destination]}."


def _blackjack_state(problem: Any) -> str:
    total, dealer, has_ace = problem._get_obs()
    return f"You have {total}{' with a usable ace' if has_ace else ''}. The dealer shows {dealer}."


_WAYS = {"left": 0, "down": 1, "right": 2, "up": 3}
_COMPASS = {"up": 0, "right": 1, "down": 2, "left": 3}
_TAXI = {"south": 0, "north": 1, "east": 2, "west": 3, "pick up": 4, "drop off": 5}
_CLIFF = ToyText(
    actions=_COMPASS,
    rules=_cliff_rules,
    state=lambda problem: _describe_cell(problem, 12),
    is_won=lambda reward: True,  # only the goal ends the walk
    prepare=_cliff_start,
)


def _make_lake(size: int) -> ToyText:
    return ToyText(
        actions=_WAYS,
        rules=_lake_rules,
        state=lambda problem: _describe_cell(problem, size),
        is_won=lambda reward: reward > 0,
        options=_lake_map(size),
    )


TOY_TEXTS: Mapping[str, ToyText] = {
    "Blackjack-v1": ToyText(
        actions={"hit": 1, "stick": 0},
        rules=lambda problem: "Play one hand of blackjack: get closer to 21 than the dealer, but not over it.",
        state=_blackjack_state,
        is_won=lambda reward: reward > 0,
    ),
    "CliffWalking-v1": _CLIFF,
    "CliffWalkingSlippery-v1": _CLIFF,
    "FrozenLake-v1": _make_lake(4),
    "FrozenLake8x8-v1": _make_lake(8),
    "Taxi-v4": ToyText(actions=_TAXI, rules=_taxi_rules, state=_taxi_state, is_won=lambda reward: reward > 0),
}
"""id of gymnasium -> its words."""
