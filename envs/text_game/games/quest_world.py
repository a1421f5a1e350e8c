"""The world of a quest: rooms in a tree, doors, containers, keys and other things, and the possible commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from verl_agentic import DataError

CARRIED = "you"
"""Place of things that the player carries."""
OPPOSITE = {"north": "south", "east": "west", "south": "north", "west": "east"}


@dataclass(frozen=True, kw_only=True)
class World:
    """The constant parts of a world, and its first state; plain JSON inside."""

    exits: Mapping[str, Mapping[str, tuple[str, str | None]]]
    """Room -> direction -> (room behind, door or None). The rooms form a tree."""
    furniture: Mapping[str, str]
    """Containers and supports, which cannot be carried -> their room."""
    locks: Mapping[str, tuple[str, str | None]]
    """Doors and containers -> their first status (`open`, `closed`, `locked`), and their key."""
    things: Mapping[str, str]
    """Portable thing -> its first place: a room, a container or a support."""
    start: str
    """The first room."""
    goal: tuple[str, str]
    """(thing, place): the goal of the thing; `you` is the inventory."""
    names: tuple[str, ...] = field(init=False)
    """The things, in the order of states."""
    lids: tuple[str, ...] = field(init=False)
    """Doors and containers, in the order of states."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.things))
        object.__setattr__(self, "lids", tuple(self.locks))
        places = {*self.exits, *self.furniture}
        doors = {door for ways in self.exits.values() for _, door in ways.values() if door is not None}
        ok = (
            self.start in self.exits
            and self.goal[0] in self.things
            and self.goal[1] in {CARRIED, *self.furniture}
            and places.issuperset(self.things.values())
            and set(self.exits).issuperset(self.furniture.values())
            and doors <= set(self.locks) <= {*doors, *self.furniture}
            and all(status in ("open", "closed", "locked") for status, _ in self.locks.values())
            and {key for _, key in self.locks.values() if key} <= set(self.things)
        )
        if not ok:
            raise DataError(f"the world of a quest names what it does not have, got {self}; make the rows anew")
        if not _is_tree(self.exits):
            raise DataError(f"the rooms of a quest must form a tree, got {dict(self.exits)}; make the rows anew")

    def to_spec(self) -> dict[str, Any]:
        """Returns the world as plain JSON."""
        return {
            "start": self.start,
            "goal": list(self.goal),
            "exits": [
                [room, way, behind, door]
                for room, ways in self.exits.items()
                for way, (behind, door) in ways.items()
                if way in ("north", "east")  # the way back follows from it
            ],
            "rooms": list(self.exits),
            "furniture": dict(self.furniture),
            "locks": {lid: list(lock) for lid, lock in self.locks.items()},
            "things": dict(self.things),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> World:
        """Returns the world of a `to_spec`.

        Raises:
            DataError: it contradicts itself.
        """
        exits: dict[str, dict[str, tuple[str, str | None]]] = {room: {} for room in spec["rooms"]}
        for room, way, behind, door in spec["exits"]:
            exits[room][way] = (behind, door)
            exits[behind][OPPOSITE[way]] = (room, door)
        thing, place = spec["goal"]
        return cls(
            exits=exits,
            furniture=dict(spec["furniture"]),
            locks={lid: (status, key) for lid, (status, key) in spec["locks"].items()},
            things=dict(spec["things"]),
            start=spec["start"],
            goal=(thing, place),
        )

    def first(self) -> QuestState:
        """Returns the first state of the quest."""
        return QuestState(self.start, tuple(self.things.values()), tuple(status for status, _ in self.locks.values()))

    def place(self, state: QuestState, thing: str) -> str:
        """Returns the place of a thing or a piece of furniture."""
        return self.furniture[thing] if thing in self.furniture else state.places[self.names.index(thing)]

    def room(self, state: QuestState, thing: str) -> str:
        """Returns the room of a thing, also if it is carried, or in or on something."""
        place = self.place(state, thing)
        if place == CARRIED:
            return state.room
        return place if place in self.exits else self.furniture[place]

    def is_open(self, state: QuestState, lid: str | None) -> bool:
        """Returns whether a door or container is open; True without a lid."""
        return lid not in self.locks or state.lids[self.lids.index(lid)] == "open"

    def contents(self, state: QuestState, place: str) -> list[str]:
        """Returns the things at a place itself, in the order of the world."""
        return [name for name, location in zip(self.names, state.places, strict=True) if location == place]

    def nearby(self, state: QuestState) -> list[str]:
        """Returns the furniture of the room."""
        return [name for name, room in self.furniture.items() if room == state.room]

    def successors(self, state: QuestState) -> Iterator[tuple[str, QuestState]]:
        """Yields every possible command that changes the state, with the next state."""
        yield from self._iter_walks(state)
        yield from self._iter_lids(state)
        yield from self._iter_takes(state)
        yield from self._iter_puts(state)

    def _iter_walks(self, state: QuestState) -> Iterator[tuple[str, QuestState]]:
        for way, (behind, door) in self.exits[state.room].items():
            if self.is_open(state, door):
                yield f"go {way}", state._replace(room=behind)

    def _iter_lids(self, state: QuestState) -> Iterator[tuple[str, QuestState]]:
        doors = [door for _, door in self.exits[state.room].values() if door is not None]
        for lid in [*doors, *(name for name in self.nearby(state) if name in self.locks)]:
            status, key = state.lids[self.lids.index(lid)], self.locks[lid][1]
            if status == "closed":
                yield f"open {lid}", self._with_lid(state, lid, "open")
            elif status == "open":
                yield f"close {lid}", self._with_lid(state, lid, "closed")
            elif key is not None and self.place(state, key) == CARRIED:
                yield f"unlock {lid} with {key}", self._with_lid(state, lid, "closed")

    def _iter_takes(self, state: QuestState) -> Iterator[tuple[str, QuestState]]:
        reach = [state.room, *(name for name in self.nearby(state) if self.is_open(state, name))]
        for place in reach:
            for thing in self.contents(state, place):
                yield f"take {thing}", self.with_thing(state, thing, CARRIED)

    def _iter_puts(self, state: QuestState) -> Iterator[tuple[str, QuestState]]:
        places = [name for name in self.nearby(state) if self.is_open(state, name)]
        for thing in self.contents(state, CARRIED):
            yield f"drop {thing}", self.with_thing(state, thing, state.room)
            for place in places:
                yield self.put(thing, place), self.with_thing(state, thing, place)

    def put(self, thing: str, place: str) -> str:
        """Returns the command that puts a thing in a container or on a support."""
        return f"put {thing} {'in' if place in self.locks else 'on'} {place}"

    def _with_lid(self, state: QuestState, lid: str, status: str) -> QuestState:
        index = self.lids.index(lid)
        return state._replace(lids=(*state.lids[:index], status, *state.lids[index + 1 :]))

    def with_thing(self, state: QuestState, thing: str, place: str) -> QuestState:
        """Returns the state in which a thing is at a place."""
        index = self.names.index(thing)
        return state._replace(places=(*state.places[:index], place, *state.places[index + 1 :]))


class QuestState(NamedTuple):
    """The state of a quest."""

    room: str
    places: tuple[str, ...]
    """Place of each thing of `World.names`."""
    lids: tuple[str, ...]
    """Status of each door and container of `World.lids`."""


def _is_tree(exits: Mapping[str, Mapping[str, tuple[str, str | None]]]) -> bool:
    first, *others = exits
    ends, reached = [first], {first}
    while ends:
        beside = {behind for behind, _ in exits[ends.pop()].values()} - reached
        reached |= beside
        ends.extend(beside)
    return len(reached) == 1 + len(others) and sum(map(len, exits.values())) == 2 * len(others)
