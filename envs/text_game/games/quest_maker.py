"""Draws the world of a quest, with a goal whose shortest solution has a given length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from verl_agentic import ConfigError

from .grid import DIRECTIONS, Cell
from .quest_solver import solve
from .quest_world import CARRIED, OPPOSITE, World

_ROOMS = (
    "kitchen", "cellar", "attic", "hall", "library", "garden", "study", "pantry", "workshop", "garage",
    "bedroom", "bathroom", "balcony", "laundry", "nursery", "office", "parlor", "stable", "tower", "chapel",
)  # fmt: skip
_CONTAINERS = ("chest", "box", "cupboard", "crate", "trunk", "drawer", "basket", "safe", "cabinet", "barrel")
_SUPPORTS = ("table", "shelf", "desk", "bench", "counter", "stool", "mantel", "rack", "altar", "pedestal")
_THINGS = (
    "apple", "coin", "lamp", "book", "rope", "cup", "ring", "map", "candle", "bottle",
    "hammer", "spoon", "feather", "mirror", "flute", "glove", "letter", "shell", "dagger", "clock",
)  # fmt: skip
_COLORS = ("red", "blue", "green", "yellow", "black", "white", "brown", "purple", "orange", "grey", "pink", "golden")
_WAYS: dict[str, Cell] = dict(zip(("north", "east", "south", "west"), DIRECTIONS.values(), strict=True))
_TRIES = 3_000
_DOOR_SHARE = 0.6


@dataclass(frozen=True, kw_only=True)
class QuestOptions:
    """Options of a quest; the sizes of TextWorld's games (`w2-o3-q4`)."""

    rooms: int = 2
    """Number of rooms."""
    objects: int = 3
    """Number of containers, supports, keys and other things; doors do not count."""
    quest_length: int = 4
    """Number of commands of the shortest solution."""
    layout: Literal["tree", "path"] = "tree"
    """Arrangement of the rooms. `path`: in a row. Keys lie in the first room, and the thing behind the last, locked
    door."""
    keys: int = 3
    """Number of keys in the first room of a `path`, one of which opens the last door."""
    hint: bool = False
    """Whether the prompt names the locked doors and containers."""

    def __post_init__(self) -> None:
        if self.layout not in ("tree", "path"):
            raise ConfigError(f"layout must be 'tree' or 'path', got {self.layout!r}")
        if not 1 <= self.rooms <= len(_ROOMS):
            raise ConfigError(f"rooms must be 1 to {len(_ROOMS)}, got {self.rooms}")
        if not 1 <= self.objects <= len(_THINGS):
            raise ConfigError(f"objects must be 1 to {len(_THINGS)}, got {self.objects}")
        if not 1 <= self.quest_length <= 30:
            raise ConfigError(f"quest_length must be 1 to 30, got {self.quest_length}")
        if self.layout == "path":
            self._check_path()

    @property
    def path_doors(self) -> int:
        """Number of closed doors of a `path`, besides the locked one."""
        # Take the key, walk, unlock, open, take the thing.
        return self.quest_length - (self.rooms - 1) - 4

    def _check_path(self) -> None:
        if not 1 <= self.keys < self.objects:
            raise ConfigError(
                f"keys of a path must be at least 1 and below objects ({self.objects}), which include the thing to "
                f"get, got {self.keys}"
            )
        if self.keys + self.path_doors > len(_COLORS):
            raise ConfigError(f"keys and doors of a path need a colour each of {len(_COLORS)}, got {self}; lower them")
        if self.rooms < 2 or not 0 <= self.path_doors <= self.rooms - 2:
            raise ConfigError(
                f"quest_length of a path of {self.rooms} rooms must be {self.rooms + 3} to {2 * self.rooms + 1}, with "
                f"2 rooms or more, got {self.quest_length}"
            )


def make_world(seed: int, options: QuestOptions) -> World:
    """Returns the world of a seed.

    Raises:
        ConfigError: these numbers of rooms and objects hardly ever give a quest of that length.
    """
    rng = random.Random(seed)
    if options.layout == "path":
        return _draw_path(rng, options)
    for _ in range(_TRIES):
        world = _draw_world(rng, options)
        every = goals(world)
        for goal in rng.sample(every, len(every)):
            quest = replace(world, goal=goal)
            solution = solve(quest, quest.first(), max_length=options.quest_length)
            if solution is not None and len(solution) == options.quest_length:
                return quest
    raise ConfigError(
        f"none of {_TRIES} worlds has such a quest, got {options}; lower quest_length, or raise rooms or objects"
    )


def goals(world: World) -> list[tuple[str, str]]:
    """Returns all possible goals (thing, place) in this world: no keys, and no goal that is already reached."""
    keys = {key for _, key in world.locks.values()}
    return [
        (thing, place)
        for thing, location in world.things.items()
        for place in (CARRIED, *world.furniture)
        if thing not in keys and place != location
    ]


def _draw_world(rng: random.Random, options: QuestOptions) -> World:
    """Returns a world without a goal."""
    rooms: list[str] = rng.sample(_ROOMS, options.rooms)
    colors = iter(rng.sample(_COLORS, len(_COLORS)))
    exits, doors = _draw_map(rng, rooms, colors)
    pieces = rng.randint(0, options.objects - 1)
    containers = rng.sample(_CONTAINERS, sum(rng.random() < 0.6 for _ in range(min(pieces, len(_CONTAINERS)))))
    supports = rng.sample(_SUPPORTS, min(pieces - len(containers), len(_SUPPORTS)))
    furniture = {name: rng.choice(rooms) for name in [*containers, *supports]}
    locks = _draw_locks(rng, [*doors, *containers], max_keys=options.objects - len(furniture) - 1)
    keys = [key for _, key in locks.values() if key is not None]
    others = rng.sample(_THINGS, options.objects - len(furniture) - len(keys))
    # Containers count twice, because open things give only short quests.
    places = [*rooms, *furniture, *containers]
    things = {name: rng.choice(places) for name in rng.sample([*keys, *others], len(keys) + len(others))}
    return World(
        exits=exits,
        furniture=furniture,
        locks=locks,
        things=things,
        start=rng.choice(rooms),
        goal=(others[0], CARRIED),
    )


def _draw_path(rng: random.Random, options: QuestOptions) -> World:
    """Returns a world whose rooms lie in a row, with its goal.

    The last door is locked. Its key lies in the first room, among keys that open nothing.
    """
    rooms: list[str] = rng.sample(_ROOMS, options.rooms)
    colors = rng.sample(_COLORS, options.keys + options.path_doors)
    keys, doors = [f"{color} key" for color in colors[: options.keys]], [f"{color} door" for color in colors]
    right, shut = rng.choice(keys), doors[options.keys :]
    locked = f"{right.removesuffix(' key')} door"
    closed: dict[int, str] = dict(zip(sorted(rng.sample(range(options.rooms - 2), len(shut))), shut, strict=True))
    exits: dict[str, dict[str, tuple[str, str | None]]] = {room: {} for room in rooms}
    ways = _row_of_ways(rng, options.rooms - 1)
    for place, way in enumerate(ways):
        door = locked if place == len(ways) - 1 else closed.get(place)
        exits[rooms[place]][way] = (rooms[place + 1], door)
        exits[rooms[place + 1]][OPPOSITE[way]] = (rooms[place], door)
    target, *others = rng.sample(_THINGS, options.objects - options.keys)
    return World(
        exits=exits,
        furniture={},
        locks={**dict.fromkeys(shut, ("closed", None)), locked: ("locked", right)},
        things={
            **dict.fromkeys(keys, rooms[0]),
            target: rooms[-1],
            **{name: rng.choice(rooms[:-1]) for name in others},
        },
        start=rooms[0],
        goal=(target, CARRIED),
    )


def _row_of_ways(rng: random.Random, count: int) -> list[str]:
    """Returns directions of a walk on a grid that comes to no cell twice."""
    while True:
        cell, ways, cells = (0, 0), [], {(0, 0)}
        for _ in range(count):
            way = rng.choice(sorted(_WAYS))
            cell = (cell[0] + _WAYS[way][0], cell[1] + _WAYS[way][1])
            ways.append(way)
            cells.add(cell)
        if len(cells) == count + 1:
            return ways


def _draw_map(
    rng: random.Random, rooms: list[str], colors: Iterator[str]
) -> tuple[dict[str, dict[str, tuple[str, str | None]]], list[str]]:
    """Returns the exits of rooms on a grid, each beside an earlier one, and the doors."""
    rooms_by_cell: dict[Cell, str] = {(0, 0): rooms[0]}
    exits: dict[str, dict[str, tuple[str, str | None]]] = {room: {} for room in rooms}
    doors: list[str] = []
    for room in rooms[1:]:
        free = [
            (cell, way, beside)
            for cell in rooms_by_cell
            for way, (row, column) in _WAYS.items()
            if (beside := (cell[0] + row, cell[1] + column)) not in rooms_by_cell
        ]
        cell, way, beside = rng.choice(free)
        color = next(colors, None) if rng.random() < _DOOR_SHARE else None
        door = None if color is None else f"{color} door"
        exits[rooms_by_cell[cell]][way] = (room, door)
        exits[room][OPPOSITE[way]] = (rooms_by_cell[cell], door)
        rooms_by_cell[beside] = room
        doors += [door] if door else []
    return exits, doors


def _draw_locks(rng: random.Random, lids: list[str], *, max_keys: int) -> dict[str, tuple[str, str | None]]:
    """Returns status and key of each lid; the number of locked lids is the number of keys."""
    statuses = {lid: rng.choices(("open", "closed", "locked"), weights=(1, 4, 3))[0] for lid in lids}
    locked = [lid for lid in lids if statuses[lid] == "locked"]
    keys = {lid: f"{lid.removesuffix(' door')} key" for lid in rng.sample(locked, min(len(locked), max_keys))}
    return {
        lid: ("closed" if status == "locked" and lid not in keys else status, keys.get(lid))
        for lid, status in statuses.items()
    }
