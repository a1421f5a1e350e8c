"""The domains of the desk: one file of tools each, and the data of those that can be generated."""

from __future__ import annotations

from collections.abc import Mapping

from ..world import World
from .airline import Airline
from .airline_tasks import GENERATOR as AIRLINE
from .retail import Retail
from .retail_tasks import GENERATOR as RETAIL
from .telecom import Telecom

WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(name="retail", tools=Retail, generator=RETAIL),
        World(name="airline", tools=Airline, generator=AIRLINE),
        World(name="telecom", tools=Telecom),
    )
}
"""Every domain."""
