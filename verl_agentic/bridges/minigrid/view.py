"""The agent's view of a grid in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

TYPES = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
DOORS = ("open", "closed", "locked")
_PLAIN = ("unseen", "empty", "wall", "floor", "agent")
_COLORLESS = ("goal", "lava")


def describe(image: Sequence[Sequence[Sequence[int]]], carrying: Any) -> str:
    """Returns an observation as text.

    Args:
        image: columns of cells (type, colour, state), seen by an agent in the middle of the last row, facing the first.
        carrying: the object that the agent carries, or None.
    """
    middle, own_row = len(image) // 2, len(image[0]) - 1
    objects = [
        (own_row - row, column - middle, name)
        for column, cells in enumerate(image)
        for row, cell in enumerate(cells)
        if (name := _name_content(*cell)) and (column, row) != (middle, own_row)
    ]
    things = [f"{name} {_describe_place(ahead, side)}" for ahead, side, name in sorted(objects, key=_rank_by_distance)]
    walls = {
        "ahead": _find_wall(lambda steps: image[middle][own_row - steps], own_row),
        "left": _find_wall(lambda steps: image[middle - steps][own_row], middle),
        "right": _find_wall(lambda steps: image[middle + steps][own_row], middle),
    }
    wall_texts = [f"{steps} {way}" for way, steps in walls.items() if steps is not None]
    carried = "nothing" if carrying is None else f"{carrying.color} {carrying.type}"
    return f"You see: {', '.join(things) or 'nothing'}. Walls: {', '.join(wall_texts) or 'none'}. You carry: {carried}."


def _name_content(kind: int, color: int, state: int) -> str:
    """Returns the name of a cell's content; empty for cells without an object."""
    name = TYPES[kind]
    if name in _PLAIN:
        return ""
    if name in _COLORLESS:
        return name
    return f"{DOORS[state]} {COLORS[color]} door" if name == "door" else f"{COLORS[color]} {name}"


def _describe_place(ahead: int, side: int) -> str:
    parts = [f"{ahead} ahead"] if ahead else []
    parts += [f"{abs(side)} {'left' if side < 0 else 'right'}"] if side else []
    return " ".join(parts)


def _rank_by_distance(thing: tuple[int, int, str]) -> tuple[int, int, int, str]:
    ahead, side, name = thing
    return ahead + abs(side), ahead, side, name


def _find_wall(cell: Callable[[int], Sequence[int]], reach: int) -> int | None:
    """Returns the steps to the first wall in a direction, or None if none is seen."""
    return next((steps for steps in range(1, reach + 1) if TYPES[cell(steps)[0]] == "wall"), None)
