"""The solver of Sokoban: finds all winnable positions of a level backwards from the solved ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import NamedTuple
from weakref import WeakValueDictionary

from .grid import NAMES, Cell, after

MAX_STATES = 200_000
"""Maximum positions of a level, which take about 1 s and 15 MB to solve."""
_OPPOSITE = dict(zip(NAMES, NAMES[2:] + NAMES[:2], strict=True))


class LevelState(NamedTuple):
    """Positions of player and boxes."""

    player: Cell
    boxes: frozenset[Cell]


class Layout(NamedTuple):
    """The floor and targets."""

    floor: frozenset[Cell]
    targets: frozenset[Cell]


@dataclass(frozen=True, eq=False)
class Solutions:
    """The winnable positions of a layout; a class because a dict cannot have weak references."""

    moves_left: dict[LevelState, int]


_shared: WeakValueDictionary[Layout, Solutions] = WeakValueDictionary()


def solutions(layout: Layout) -> Solutions:
    """Returns the winnable positions of a layout; callers share one object per layout."""
    cached = _shared.get(layout)
    if cached is None:
        cached = _shared[layout] = Solutions(_solve_backwards(layout))
    return cached


def state_count(floor: int, boxes: int) -> int:
    """Returns the number of positions of a floor."""
    return comb(floor, boxes) * max(floor - boxes, 0)


def _solve_backwards(layout: Layout) -> dict[LevelState, int]:
    """Returns the moves of the shortest solution from every winnable position."""
    level = [LevelState(player, layout.targets) for player in sorted(layout.floor - layout.targets)]
    moves_left = dict.fromkeys(level, 0)
    moves = 0
    while level:
        moves += 1
        before = [state for later in level for state in _iter_predecessors(layout, later)]
        level = []
        for state in before:
            if state not in moves_left:
                moves_left[state] = moves
                level.append(state)
    return moves_left


def _iter_predecessors(layout: Layout, state: LevelState) -> Iterator[LevelState]:
    for direction in NAMES:
        came_from = after(state.player, _OPPOSITE[direction])
        if came_from not in layout.floor or came_from in state.boxes:
            continue
        if state.boxes != layout.targets:  # the game ends at a solved position
            yield LevelState(came_from, state.boxes)
        pushed = after(state.player, direction)
        if pushed in state.boxes:
            yield LevelState(came_from, state.boxes - {pushed} | {state.player})
