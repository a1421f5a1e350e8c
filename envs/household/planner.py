"""Plans the next command of a solution, knowing where everything is."""

from __future__ import annotations

from .house import APPLIANCES, LAMP, House, class_of


def next_command(house: House) -> str | None:
    """Returns the next command of a short solution; None if the goal is reached or out of reach."""
    if house.is_won:
        return None
    carried = house.carried
    if not carried:
        return _fetch_thing(house)
    if class_of(carried) != house.goal.thing:
        return _lay_down(house)
    if house.goal.kind == "look_in_light":
        lamp = next((thing for thing in house.things if class_of(thing) == LAMP), None)
        return None if lamp is None else _reach_inside(house, house.things[lamp]) or f"use {lamp}"
    if not house.is_ready(carried):
        appliance = _find_nearest(house, APPLIANCES[house.goal.kind])
        if appliance is None:
            return None
        is_there = house.place == appliance
        return f"{house.goal.kind} {carried} with {appliance}" if is_there else f"go to {appliance}"
    target = _find_nearest(house, house.goal.receptacle)
    return None if target is None else _reach_inside(house, target) or f"put {carried} in/on {target}"


def _fetch_thing(house: House) -> str | None:
    """Returns the next command to get a thing that is not where it belongs."""
    candidates = [
        (place != house.place, thing, place)
        for thing, place in house.things.items()
        if class_of(thing) == house.goal.thing
        and not (house.goal.receptacle and class_of(place) == house.goal.receptacle and house.is_ready(thing))
    ]
    if not candidates:
        return None
    _, thing, place = min(candidates)
    return _reach_inside(house, place) or f"take {thing} from {place}"


def _lay_down(house: House) -> str:
    current = house.place
    place = current if current and house.is_open(current) else next(iter(house.receptacles))
    return _reach_inside(house, place) or f"put {house.carried} in/on {place}"


def _reach_inside(house: House, place: str) -> str | None:
    """Returns the next command to get at the inside of a receptacle; None if the player is there."""
    if house.place != place:
        return f"go to {place}"
    return None if house.is_open(place) else f"open {place}"


def _find_nearest(house: House, name: str) -> str | None:
    """Returns a receptacle of a class, the one in front of the player first."""
    places = [place for place in house.receptacles if class_of(place) == name]
    return min(places, key=lambda place: place != house.place, default=None)
