"""A house with its things, the commands that are possible, and their effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_agentic import DataError
from verl_agentic.base.errors import boundary

Kind = Literal["pick_and_place", "look_in_light", "clean", "heat", "cool", "pick_two"]
APPLIANCES: Mapping[str, str] = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""Command -> the receptacle that it needs."""
LAMP = "desklamp"
NOTHING = "Nothing happens."


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The goal of a task."""

    kind: Kind
    thing: str
    """Class of the thing, such as `apple`; `apple 1` is one of them."""
    receptacle: str = ""
    """Class of the receptacle; empty for `look_in_light`."""


@dataclass(kw_only=True)
class House:
    """A house in its present state."""

    receptacles: dict[str, str]
    """Receptacle -> `open`, `closed`, or `surface`, which has no door."""
    things: dict[str, str]
    """Thing -> the receptacle that it is in; empty: it is carried."""
    goal: Goal
    place: str = ""
    """Receptacle in front of the player; empty: none."""
    states: dict[str, str] = field(default_factory=dict)
    """Thing -> what was last done with it: `clean`, `heat` or `cool`."""
    lit: bool = False
    """Whether the thing of the goal was looked at under a lamp."""

    @classmethod
    def from_spec(cls, spec: Any) -> House:
        """Returns the house of a row's ground truth.

        Raises:
            DataError: it describes no house.
        """
        with boundary(DataError, f"reading a house from the ground truth {spec!r}"):
            house = cls(receptacles=dict(spec["receptacles"]), things=dict(spec["things"]), goal=Goal(**spec["goal"]))
            if unknown := set(house.things.values()) - set(house.receptacles):
                raise DataError(f"things must be in receptacles of the house, got {sorted(unknown)}")
        return house

    @property
    def carried(self) -> str:
        """The thing that the player carries; empty: none."""
        return next((thing for thing, place in self.things.items() if not place), "")

    @property
    def is_won(self) -> bool:
        """True if the goal is reached."""
        goal = self.goal
        if goal.kind == "look_in_light":
            return self.lit
        things = [
            thing
            for thing, place in self.things.items()
            if class_of(thing) == goal.thing and place and class_of(place) == goal.receptacle and self.is_ready(thing)
        ]
        return len(things) >= (2 if goal.kind == "pick_two" else 1)

    def is_ready(self, thing: str) -> bool:
        """Returns whether a thing is clean, hot or cold, as the goal asks."""
        return self.goal.kind not in APPLIANCES or self.states.get(thing) == self.goal.kind

    def is_open(self, receptacle: str) -> bool:
        """Returns whether things can be put in a receptacle, or taken from it."""
        return self.receptacles.get(receptacle, "closed") != "closed"

    def contents(self, receptacle: str) -> list[str]:
        """Returns the things in or on a receptacle."""
        return [thing for thing, place in self.things.items() if place == receptacle]

    def admissible(self) -> list[str]:
        """Returns all commands that do something now."""
        place, carried = self.place, self.carried
        commands = [f"go to {name}" for name in self.receptacles if name != place]
        status = self.receptacles.get(place)
        if status in ("open", "closed"):
            commands.append(f"{'close' if status == 'open' else 'open'} {place}")
        if place and self.is_open(place):
            things = self.contents(place)
            commands += [f"use {thing}" for thing in things if class_of(thing) == LAMP]
            if carried:
                commands.append(f"put {carried} in/on {place}")
            else:
                commands += [f"take {thing} from {place}" for thing in things if class_of(thing) != LAMP]
        if carried:
            commands += [
                f"{verb} {carried} with {place}" for verb, name in APPLIANCES.items() if class_of(place) == name
            ]
        return [*commands, "inventory", "look"]

    def act(self, command: str) -> str:
        """Executes an admissible command and returns what the player sees; others do nothing."""
        if command not in self.admissible():
            return NOTHING
        verb, _, rest = command.partition(" ")
        if verb == "go":
            self.place = rest.removeprefix("to ")
            return f"You arrive at {self.place}. {self.view()}"
        if verb in ("open", "close"):
            self.receptacles[rest] = "open" if verb == "open" else "closed"
            return f"You {verb} the {rest}." + (f" {self.view()}" if verb == "open" else "")
        if verb == "take":
            thing = rest.rpartition(" from ")[0]
            self.things[thing] = ""
            return f"You pick up the {thing} from the {self.place}."
        if verb == "put":
            thing = self.carried
            self.things[thing] = self.place
            return f"You put the {thing} in/on the {self.place}."
        if verb in APPLIANCES:
            self.states[self.carried] = verb
            return f"You {verb} the {self.carried} using the {self.place}."
        if verb == "use":
            self.lit = self.lit or class_of(self.carried) == self.goal.thing
            return f"You turn on the {rest}."
        if verb == "inventory":
            return f"You are carrying: {self.carried or 'nothing'}."
        return self.view() if self.place else self.overview()

    def overview(self) -> str:
        """Returns the receptacles of the room."""
        return f"You are in the middle of a room. Around you, you see {listed(self.receptacles)}."

    def view(self) -> str:
        """Returns what is in front of the player."""
        name, status = self.place, self.receptacles[self.place]
        if status == "closed":
            return f"The {name} is closed."
        contents = listed(self.contents(name))
        return (
            f"The {name} is open. In it, you see {contents}."
            if status == "open"
            else f"On the {name}, you see {contents}."
        )


def class_of(name: str) -> str:
    """Returns the class of a thing or a receptacle: `apple` of `apple 1`."""
    return name.rpartition(" ")[0]


def listed(names: Any) -> str:
    """Returns names as a list in a sentence."""
    return ", ".join(f"a {name}" for name in names) or "nothing"
