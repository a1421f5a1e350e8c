"""A generated world whose facts no model can know: people, their towns and teachers, and the rivers of the towns."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

_NUM_PEOPLE, _NUM_TOWNS = 6_000, 250
_SEED = 20_506
_SYLLABLES = tuple(c + v for c in "bdfgklmnprstvz" for v in "aeiou")


@dataclass(frozen=True, kw_only=True)
class World:
    """All facts."""

    home: dict[str, str]
    """Person -> town."""
    teacher: dict[str, str]
    """Person -> person."""
    river: dict[str, str]
    """Town -> river."""


@functools.cache
def make_world() -> World:
    """Returns the world, which is the same everywhere."""
    rng = random.Random(_SEED)
    names: dict[str, None] = {}
    while len(names) < _NUM_PEOPLE + 2 * _NUM_TOWNS:
        names["".join(rng.choices(_SYLLABLES, k=3)).capitalize()] = None
    listed = list(names)
    towns, rivers, people = listed[:_NUM_TOWNS], listed[_NUM_TOWNS : 2 * _NUM_TOWNS], listed[2 * _NUM_TOWNS :]
    return World(
        home={person: rng.choice(towns) for person in people},
        teacher=dict(zip(people, people[1:] + people[:1], strict=True)),
        river=dict(zip(towns, rivers, strict=True)),
    )
