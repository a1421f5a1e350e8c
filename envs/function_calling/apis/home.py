"""Smart home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, integer, obj, one_of, text
from .values import ROOMS

_COLOURS = ("warm", "cold", "red", "blue")


def _switch_light(arguments: Mapping[str, Any]) -> Any:
    return {"room": arguments["room"], "light": arguments["state"]}


def _set_heating(arguments: Mapping[str, Any]) -> Any:
    return {"zone": arguments["zone"], "target": arguments["temperature"], "reached_in_minutes": 20}


APIS = (
    Api(
        name="set_light",
        description="Switches or dims the light of a room.",
        properties={
            "room": text("Name of the room."),
            "state": {
                "description": "on or off, or how bright and which colour.",
                "anyOf": [
                    {"type": "string", "enum": ["on", "off"]},
                    obj(
                        {
                            "brightness": integer("Percent.", minimum=1, maximum=100),
                            "colour": one_of(_COLOURS, "Colour.", default="warm"),
                        }
                    ),
                ],
            },
        },
        respond=_switch_light,
    ),
    Api(
        name="set_thermostat",
        description="Sets the temperature of a heating zone, in degrees Celsius.",
        properties={
            "zone": text("Room or zone."),
            "temperature": {"type": "number", "minimum": 5, "maximum": 30},
            "until": {
                "description": "Time of day, as HH:MM, after which the schedule applies again; null for no end.",
                "anyOf": [{"type": "string", "pattern": r"^\d{2}:\d{2}$"}, {"type": "null"}],
                "default": None,
            },
        },
        respond=_set_heating,
    ),
)

INTENTS = (
    Intent(
        tool="set_light",
        draw=lambda d: {"room": d.pick(ROOMS), "state": d.choice(("on", "off"))},
        train=("Turn the light in the {room} {state}.", "Light {state} in the {room}, please."),
        test=("Switch {state} the light of the {room}.",),
        without={"place": ("Turn the light {state}.", "Switch {state} the light for me.")},
    ),
    Intent(
        tool="set_light",
        draw=lambda d: {"room": d.pick(ROOMS), "brightness": d.number(5, 95, 5), "colour": d.choice(_COLOURS[1:])},
        arguments=lambda s: {"room": s["room"], "state": {"brightness": s["brightness"], "colour": s["colour"]}},
        train=("Make the light in the {room} {colour}, at {brightness} percent.",),
        test=("Dim the {room} to {brightness} % and choose {colour} light.",),
    ),
    Intent(
        tool="set_light",
        draw=lambda d: {"room": d.pick(ROOMS), "brightness": d.number(5, 95, 5)},
        arguments=lambda s: {"room": s["room"], "state": {"brightness": s["brightness"]}},
        train=("Dim the light in the {room} to {brightness} percent.",),
        test=("I want the light of the {room} at {brightness} %.",),
    ),
    Intent(
        tool="set_thermostat",
        draw=lambda d: {"zone": d.pick(ROOMS), "temperature": d.number(30, 50) / 2, "until": d.time()},
        train=("Heat the {zone} to {temperature:g} degrees until {until}.",),
        test=("The {zone} should have {temperature:g} degrees until {until}.",),
        without={
            "amount": (
                "Set the thermostat of the {zone} until {until}.",
                "The {zone} should be heated until {until}.",
            )
        },
    ),
)

CHAINS: tuple[Chain, ...] = ()
