"""Simulated tools, and the wordings of requests for them."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Split = Literal["train", "test"]
Slots = Mapping[str, Any]
Respond = Callable[[str, Mapping[str, Any]], Any]
_T = TypeVar("_T")
_FIRST_DAY = datetime.date(2031, 1, 1)
_DAYS = 720
_HELD_OUT = 4  # every fourth value belongs to the test split


@dataclass(frozen=True, kw_only=True)
class Api:
    """A simulated tool: equal arguments get equal answers."""

    name: str
    description: str
    properties: Mapping[str, Any]
    """JSON schema of every argument; those without a default are required."""
    respond: Callable[[Mapping[str, Any]], Any]
    """Arguments with their defaults -> the answer, a JSON value."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments; unknown ones are refused."""
        return obj(self.properties)

    @property
    def schema(self) -> dict[str, Any]:
        """The OpenAI function schema."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A request for one call, with its wordings."""

    tool: str
    draw: Callable[[Draw], Slots]
    """Values of the wordings."""
    arguments: Callable[[Slots], dict[str, Any]] = dict
    """Slots -> arguments of the right call; by default equal."""
    train: Sequence[str]
    """Wordings of the training split; `{slot}` stands for a slot."""
    test: Sequence[str]
    """Wordings of the test split."""
    without: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Topic (see `answers.TOPICS`) that is left out -> a wording for training and one for test without it."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A request for two calls; the second uses the first one's answer."""

    draw: Callable[[Draw], Slots]
    calls: Callable[[Slots, Respond], list[dict[str, Any]]]
    """Slots and tool answers -> the right calls, in order."""
    train: Sequence[str]
    test: Sequence[str]


class Draw:
    """Draws values of one split."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.rng = rng
        self.split: Split = split

    def pick(self, pool: Sequence[_T]) -> _T:
        """Returns a value that only this split has."""
        return self.rng.choice(self._select_pool(pool))

    def several(self, pool: Sequence[_T], low: int, high: int) -> list[_T]:
        """Returns `low` to `high` different values that only this split has."""
        return self.rng.sample(self._select_pool(pool), self.rng.randint(low, high))

    def choice(self, pool: Sequence[_T]) -> _T:
        """Returns a value that both splits have: of an enumeration, or a small number."""
        return self.rng.choice(pool)

    def number(self, low: int, high: int, step: int = 1) -> int:
        """Returns a number that both splits have."""
        return self.rng.randrange(low, high + 1, step)

    def date(self) -> str:
        """Returns a day, as `2031-05-17`, that only this split has."""
        day = self.pick(range(_DAYS))
        return (_FIRST_DAY + datetime.timedelta(days=day)).isoformat()

    def time(self) -> str:
        """Returns a full or half hour of a working day, as `09:30`."""
        return f"{self.number(8, 18):02}:{self.choice(('00', '30'))}"

    def _select_pool(self, pool: Sequence[_T]) -> list[_T]:
        return [value for i, value in enumerate(pool) if (i % _HELD_OUT == 0) == (self.split == "test")]


def obj(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object that has these properties and no others; those without a default are required."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name, schema in properties.items() if "default" not in schema],
        "additionalProperties": False,
    }


def text(description: str, **more: Any) -> dict[str, Any]:
    """Returns the schema of a string."""
    return {"type": "string", "description": description, **more}


def integer(description: str, **more: Any) -> dict[str, Any]:
    """Returns the schema of a whole number."""
    return {"type": "integer", "description": description, **more}


def one_of(values: Sequence[str], description: str, **more: Any) -> dict[str, Any]:
    """Returns the schema of an enumeration."""
    return {"type": "string", "enum": list(values), "description": description, **more}


def listed(items: Mapping[str, Any], description: str, **more: Any) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": dict(items), "description": description, **more}


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Returns an expected call."""
    return {"name": name, "arguments": arguments}


def dice(name: str, arguments: Mapping[str, Any]) -> random.Random:
    """Returns random numbers that depend on the call alone."""
    return random.Random(name + json.dumps(arguments, sort_keys=True))


def identifier(prefix: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Returns an id such as `evt-4711` that depends on the call alone."""
    return f"{prefix}-{dice(name, arguments).randint(1000, 9999)}"


def and_list(values: Sequence[str]) -> str:
    """Returns values as prose: `a`, `a and b`, `a, b and c`."""
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"
