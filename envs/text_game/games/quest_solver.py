"""The solver of quests: it searches only unavoidable commands, so that it solves large worlds.

The rooms form a tree. So every lid on the path to a needed thing must be opened, and every locked one needs its key.
Dropping things, putting them elsewhere and closing lids never helps, because the inventory has no limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .quest_world import CARRIED, QuestState, World

_MAX_STATES = 50_000


def solve(world: World, state: QuestState, *, max_length: int | None = None) -> list[str] | None:
    """Returns the fewest commands that reach the goal; None without a solution within `max_length`."""
    thing, place = world.goal
    commands = _find_unavoidable(world, state)
    if commands is None or (max_length is not None and len(commands) > max_length):
        return None

    def moves(state: QuestState) -> Iterator[tuple[str, QuestState]]:
        for command, following in world.successors(state):
            if command in commands or command.startswith("go "):
                yield command, following

    return _find_shortest(
        state,
        moves=moves,
        is_goal=lambda s: world.place(s, thing) == place,
        max_states=_MAX_STATES,
        max_length=max_length,
    )


def _find_unavoidable(world: World, state: QuestState) -> set[str] | None:
    """Returns every command except walking that each solution has exactly once; None if a key is missing."""
    thing, place = world.goal
    if world.place(state, thing) == place:
        return set()
    commands: set[str] = set()
    needed, visited = [thing], {thing}
    if place != CARRIED:
        commands.add(world.put(thing, place))
        needed.append(place)
    while needed:
        name = needed.pop()
        if name in world.things and world.place(state, name) != CARRIED:
            commands.add(f"take {name}")
        holder = name if name in world.furniture else world.place(state, name)
        for lid in [*_find_doors(world, state.room, world.room(state, name)), holder]:
            if world.is_open(state, lid):
                continue
            commands.add(f"open {lid}")
            if state.lids[world.lids.index(lid)] == "locked":
                key = world.locks[lid][1]
                if key is None:
                    return None
                commands.add(f"unlock {lid} with {key}")
                if key not in visited:
                    visited.add(key)
                    needed.append(key)
    return commands


def _find_doors(world: World, start: str, end: str) -> list[str]:
    """Returns the doors on the path between two rooms."""
    ends: list[tuple[str, str | None, list[str]]] = [(start, None, [])]
    while ends:
        room, came_from, doors = ends.pop()
        if room == end:
            return doors
        for behind, door in world.exits[room].values():
            if behind != came_from:
                ends.append((behind, room, doors if door is None else [*doors, door]))
    raise AssertionError(f"rooms form a tree, got no way from {start} to {end}")


def _find_shortest(
    start: QuestState,
    *,
    moves: Callable[[QuestState], Iterable[tuple[str, QuestState]]],
    is_goal: Callable[[QuestState], bool],
    max_states: int,
    max_length: int | None = None,
) -> list[str] | None:
    """Returns the fewest actions from `start` to a goal; None without a solution within the bounds.

    Args:
        start: the first state.
        moves: (action, next state) of a state.
        is_goal: whether a state is a goal.
        max_states: maximum number of states to search.
        max_length: maximum length of a solution; None: no maximum.
    """
    came_from: dict[QuestState, tuple[QuestState, str] | None] = {start: None}
    ends, length = deque([start]), 0
    while ends and (max_length is None or length <= max_length):
        for _ in range(len(ends)):
            state = ends.popleft()
            if is_goal(state):
                return _trace_path(state, came_from)
            for action, following in moves(state):
                if following not in came_from:
                    if len(came_from) >= max_states:
                        return None
                    came_from[following] = (state, action)
                    ends.append(following)
        length += 1
    return None


def _trace_path(state: QuestState, came_from: dict[QuestState, tuple[QuestState, str] | None]) -> list[str]:
    actions: list[str] = []
    while (step := came_from[state]) is not None:
        state, action = step
        actions.append(action)
    return actions[::-1]
