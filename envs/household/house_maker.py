"""Draws houses with a goal."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .house import APPLIANCES, LAMP, Goal, House, Kind, class_of

KINDS: tuple[Kind, ...] = ("pick_and_place", "look_in_light", "clean", "heat", "cool", "pick_two")
_WITH_DOORS = frozenset(("cabinet", "drawer", "fridge", "microwave", "safe"))
_ROOMS: Mapping[str, Mapping[str, int]] = {
    "kitchen": {
        "countertop": 3, "cabinet": 6, "drawer": 4, "fridge": 1, "microwave": 1, "sinkbasin": 1, "diningtable": 1,
        "stoveburner": 4, "coffeemachine": 1, "toaster": 1, "shelf": 3, "garbagecan": 1,
    },
    "bedroom": {
        "bed": 1, "desk": 2, "dresser": 1, "drawer": 6, "sidetable": 2, "shelf": 4, "safe": 1, "garbagecan": 1,
    },
    "livingroom": {
        "sofa": 1, "armchair": 2, "coffeetable": 1, "sidetable": 2, "tvstand": 1, "drawer": 4, "shelf": 3, "cabinet": 2,
    },
    "bathroom": {
        "sinkbasin": 2, "countertop": 1, "cabinet": 4, "toilet": 1, "bathtub": 1, "towelholder": 1, "shelf": 2,
        "garbagecan": 1,
    },
}  # fmt: skip
"""Room -> receptacle -> maximum number."""
_THINGS: Mapping[str, Sequence[str]] = {
    "kitchen": (
        "apple", "tomato", "potato", "lettuce", "bread", "egg", "mug", "cup", "bowl", "plate", "pan", "pot", "knife",
        "fork", "spoon", "spatula", "saltshaker", "peppershaker", "soapbottle", "dishsponge",
    ),
    "bedroom": ("book", "pillow", "cd", "cellphone", "laptop", "keychain", "pencil", "pen", "alarmclock", "creditcard"),
    "livingroom": ("remotecontrol", "newspaper", "vase", "statue", "book", "box", "keychain", "watch", "tissuebox"),
    "bathroom": ("soapbar", "cloth", "toiletpaper", "candle", "spraybottle", "towel", "soapbottle", "dishsponge"),
}  # fmt: skip
_FOOD = ("apple", "tomato", "potato", "bread", "egg", "mug", "cup", "plate")
_POTS = ("apple", "tomato", "potato", "lettuce", "egg", "mug", "cup", "bowl", "plate", "pan", "pot", "knife", "spoon")
_GOAL_THINGS: Mapping[str, Sequence[str]] = {"heat": _FOOD, "cool": _FOOD, "clean": (*_POTS, "cloth", "soapbar")}
_LIT_ROOMS = ("bedroom", "livingroom")


def make_house(kind: Kind, seed: int, *, receptacles: int, things: int) -> dict[str, Any]:
    """Returns the house of a seed as plain JSON; see `House.from_spec`.

    Args:
        kind: of the goal.
        seed: of the house.
        receptacles: maximum number of receptacles; the needed ones come on top.
        things: number of things besides those of the goal.
    """
    rng = random.Random(f"{kind}/{seed}")
    room = rng.choice(_rooms_for(kind))
    thing = rng.choice([name for name in _THINGS[room] if name in _GOAL_THINGS.get(kind, (name,))])
    names = _draw_receptacles(rng, room, APPLIANCES.get(kind, ""), receptacles)
    classes = sorted({class_of(name) for name in names})
    goals = [name for name in classes if name != APPLIANCES.get(kind)]
    goal = Goal(kind=kind, thing=thing, receptacle="" if kind == "look_in_light" else rng.choice(goals))
    house = House(
        receptacles={name: "closed" if class_of(name) in _WITH_DOORS else "surface" for name in names},
        things={},
        goal=goal,
    )
    places = [name for name in names if class_of(name) != goal.receptacle]
    needed = [thing] * (2 if kind == "pick_two" else rng.randint(1, 2))
    others = rng.choices([name for name in _THINGS[room] if name != thing], k=things)
    for name in rng.sample([*needed, *others], len(needed) + things):
        number = 1 + sum(class_of(placed) == name for placed in house.things)
        house.things[f"{name} {number}"] = rng.choice(places if name == thing else names)
    if kind == "look_in_light":
        surfaces = [name for name, status in house.receptacles.items() if status == "surface"]
        house.things[f"{LAMP} 1"] = rng.choice(surfaces)
    return {"receptacles": house.receptacles, "things": house.things, "goal": asdict(goal)}


def _rooms_for(kind: Kind) -> list[str]:
    if kind == "look_in_light":
        return list(_LIT_ROOMS)
    return [room for room, names in _ROOMS.items() if APPLIANCES.get(kind, "") in ("", *names)]


def _draw_receptacles(rng: random.Random, room: str, needed: str, count: int) -> list[str]:
    """Returns names with numbers, in the order of the room; at least one other class than the needed one."""
    every = [f"{name} {number}" for name, max_number in _ROOMS[room].items() for number in range(1, max_number + 1)]
    first = [name for name in every if name == f"{needed} 1"]
    chosen = {*first, *rng.sample([name for name in every if name not in first], min(count, len(every) - len(first)))}
    counts: dict[str, int] = {}
    numbered = []
    for name in map(class_of, filter(chosen.__contains__, every)):
        counts[name] = counts.get(name, 0) + 1
        numbered.append(f"{name} {counts[name]}")
    return numbered
