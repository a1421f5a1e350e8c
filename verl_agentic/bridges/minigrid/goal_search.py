"""Shortest way to the goal tile of a MiniGrid level, through doors and with keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
_Cell = tuple[int, int]


class _State(NamedTuple):
    cell: _Cell
    direction: int
    carried: str
    """Colour of the carried key; empty without one."""
    changed: frozenset[_Cell]
    """Doors that were opened, and keys that were taken."""


def next_step(level: Any) -> str | None:
    """Returns the first action of a shortest way to the goal; None without one.

    It knows the whole level, does not drop a key, and moves no other object.

    Args:
        level: an unwrapped `MiniGridEnv`.
    """
    carrying = level.carrying
    has_goal = any(content is not None and content.type == "goal" for content in level.grid.grid)
    if not has_goal or (carrying is not None and carrying.type != "key"):
        return None
    colour = "" if carrying is None else carrying.color
    first = _State((int(level.agent_pos[0]), int(level.agent_pos[1])), int(level.agent_dir), colour, frozenset())
    came_from: dict[_State, tuple[_State, str] | None] = {first: None}
    ends = deque([first])
    while ends:
        state = ends.popleft()
        content = level.grid.get(*state.cell)
        if content is not None and content.type == "goal":
            return _first_action(state, came_from)
        for action, following in _iter_moves(level, state):
            if following not in came_from:
                came_from[following] = (state, action)
                ends.append(following)
    return None


def _iter_moves(level: Any, state: _State) -> Iterator[tuple[str, _State]]:
    yield "turn left", state._replace(direction=(state.direction - 1) % 4)
    yield "turn right", state._replace(direction=(state.direction + 1) % 4)
    column, row = _STEPS[state.direction]
    ahead = (state.cell[0] + column, state.cell[1] + row)
    content = level.grid.get(*ahead)
    is_changed = ahead in state.changed
    if content is None or content.type in ("goal", "floor") or is_changed or getattr(content, "is_open", False):
        yield "go forward", state._replace(cell=ahead)
    elif content.type == "key" and not state.carried:
        yield "pick up", state._replace(carried=content.color, changed=state.changed | {ahead})
    elif content.type == "door" and (not content.is_locked or content.color == state.carried):
        yield "toggle", state._replace(changed=state.changed | {ahead})


def _first_action(state: _State, came_from: dict[_State, tuple[_State, str] | None]) -> str | None:
    action = None
    while (step := came_from[state]) is not None:
        state, action = step
    return action
