"""A text adventure: get a thing to its place, through rooms, doors, containers and locks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from verl_agentic import DataError

from .game import Move, Status, Style
from .quest_maker import QuestOptions, goals, make_world
from .quest_solver import solve
from .quest_world import CARRIED, QuestState, World

_LOOK = "look"
_WORDS = (
    (r"\b(the|a|an)\b", " "),
    (r"^(n|north)$", "go north"),
    (r"^(e|east)$", "go east"),
    (r"^(s|south)$", "go south"),
    (r"^(w|west)$", "go west"),
    (r"^(walk|move)\b", "go"),
    (r"^(l|i|inventory|look around)$", _LOOK),
    (r"^(get|pick up|grab)\b", "take"),
    (r"^(insert|place)\b", "put"),
    (r"^(take .+) (?:from|out of|off) .+$", r"\1"),
    (r"\binto\b", "in"),
    (r"\bonto\b", "on"),
)
"""Synonyms of commands; applied in this order."""


class Quest:
    """A quest; see `Game`."""

    options: ClassVar[type] = QuestOptions
    actions: Sequence[str] | None = None

    def __init__(self, world: World, *, hint: bool = False) -> None:
        """Makes the game of a world; with `hint`, the rules name what is locked."""
        self._world, self._hint = world, hint

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Quest:
        """Returns the quest of a row; see `Game.from_spec`."""
        return cls(World.from_spec(spec), hint=bool(spec.get("hint", False)))

    @classmethod
    def generate(cls, seed: int, options: QuestOptions) -> Quest:
        """Returns the quest of a seed; see `Game.generate`."""
        return cls(make_world(seed, options), hint=options.hint)

    @property
    def spec(self) -> dict[str, Any]:
        """The world."""
        return {"game": "quest", **self._world.to_spec()} | ({"hint": True} if self._hint else {})

    @property
    def identity(self) -> str:
        """The world."""
        return repr(self._world.to_spec())

    def prepare(self) -> None:
        """Checks that the quest can be won.

        Raises:
            DataError: it cannot.
        """
        self.solution(self.start())

    def start(self) -> QuestState:
        """Returns the first state."""
        return self._world.first()

    def legal(self, state: QuestState) -> Sequence[str]:
        """Returns all possible commands."""
        return [*(command for command, _ in self._world.successors(state)), _LOOK]

    def read(self, state: QuestState, text: str) -> str | None:
        """Returns the possible command of a text, with or without articles, and with synonyms."""
        meant = _normalize_command(text)
        return next((command for command in self.legal(state) if _normalize_command(command) == meant), None)

    def move(self, state: QuestState, action: str) -> Move[QuestState]:
        """Executes a command."""
        if action == _LOOK:
            return Move(state, is_effective=False)
        following = next(after for command, after in self._world.successors(state) if command == action)
        return Move(following, f"You {_with_articles(action)}.")

    def status(self, state: QuestState) -> Status:
        """Returns `goal` or `open`; every action can be undone."""
        thing, place = self._world.goal
        return "goal" if self._world.place(state, thing) == place else "open"

    def distance(self, state: QuestState) -> int | None:
        """Returns the length of the shortest solution."""
        commands = solve(self._world, state)
        return None if commands is None else len(commands)

    def solution(self, state: QuestState) -> list[str]:
        """Returns the shortest solution."""
        commands = solve(self._world, state)
        if commands is None:
            raise DataError(f"the quest cannot be won, got {self.spec} in the state {state}; make the rows anew")
        return commands

    def others_reached(self, state: QuestState) -> Iterator[Quest]:
        """Yields other quests in the same world that a state solves."""
        for thing, place in goals(self._world):
            if self._world.place(state, thing) == place and (thing, place) != self._world.goal:
                yield Quest(replace(self._world, goal=(thing, place)), hint=self._hint)

    def with_carried(self, state: QuestState, thing: str) -> QuestState:
        """Returns the state in which a thing is carried."""
        return self._world.with_thing(state, thing, CARRIED)

    def other_keys(self, state: QuestState, thing: str) -> list[str]:
        """Returns the other keys at the place of a thing; none if the thing is no key."""
        return [
            name
            for name in self._world.contents(state, self._world.place(state, thing))
            if thing.endswith(" key") and name.endswith(" key") and name != thing
        ]

    def rules(self, style: Style) -> str:
        """Returns the quest and the commands."""
        thing, place = self._world.goal
        goal = f"get the {thing}" if place == CARRIED else _with_articles(self._world.put(thing, place))
        locked = [lid for lid, (status, _) in self._world.locks.items() if status == "locked"]
        if self._hint and locked:
            goal += f"; locked: {', '.join(locked)}"
        if style == "compact":
            return f"quest: {goal}"
        return (
            f"You play a text adventure. Your quest: {goal}.\n"
            "Commands: go north, go east, go south, go west, open ..., close ..., unlock ... with ..., take ..., "
            "drop ..., put ... in ..., put ... on ..., look."
        )

    def view(self, state: QuestState, style: Style) -> str:
        """Returns the room with its visible things, and the inventory."""
        world = self._world
        exits = [way + self._describe_door(state, door) for way, (_, door) in world.exits[state.room].items()]
        things = [self._describe_piece(state, name) for name in world.nearby(state)] + world.contents(state, state.room)
        parts = [", ".join(part) or "nothing" for part in (exits, things, world.contents(state, CARRIED))]
        if style == "compact":
            return f"{state.room}; exits: {parts[0]}; here: {parts[1]}; you have: {parts[2]}"
        return f"You are in the {state.room}.\nExits: {parts[0]}.\nYou see: {parts[1]}.\nYou carry: {parts[2]}."

    def _describe_door(self, state: QuestState, door: str | None) -> str:
        return "" if door is None else f" ({door}, {state.lids[self._world.lids.index(door)]})"

    def _describe_piece(self, state: QuestState, name: str) -> str:
        world = self._world
        inside = ", ".join(world.contents(state, name)) or "nothing"
        if name not in world.locks:
            return f"{name} (on it: {inside})"
        if world.is_open(state, name):
            return f"{name} (open, in it: {inside})"
        return f"{name} ({state.lids[world.lids.index(name)]})"


def _normalize_command(text: str) -> str:
    text = " ".join(re.findall(r"\w+", text.casefold()))
    for pattern, replacement in _WORDS:
        text = " ".join(re.sub(pattern, replacement, text).split())
    return text


def _with_articles(command: str) -> str:
    """Returns a command with articles: `put the apple in the chest`."""
    verb, _, rest = command.partition(" ")
    if verb == "go":
        return command
    text = re.sub(r" (in|on|with) ", r" \1 the ", rest)
    return f"{verb} the {text}"
