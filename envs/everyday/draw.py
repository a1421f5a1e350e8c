"""Draws words, numbers and dates of a split. The splits share none of them."""

from __future__ import annotations

import datetime
import functools
import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

Split = Literal["train", "test"]
T = TypeVar("T")
_TEST_SHARE = 0.2
_NAMES = [
    *"Anna Ben Carla David Emma Felix Grace Henry Ines Jack Karen Leo Maria Noah Olga Peter Rosa Sam Tina".split(),  # noqa: SIM905
]
_THINGS = [
    *"apples pencils stickers marbles coins stamps books cards tickets shells eggs bottles bricks tiles chairs".split(),  # noqa: SIM905
]


@functools.cache
def words() -> tuple[str, ...]:
    """Returns all words, of both splits."""
    return tuple(Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split())


def split_of(value: object) -> Split:
    """Returns the split of a word, a number or a date; it is part of the task, not of a run."""
    digest = hashlib.blake2b(str(value).encode(), digest_size=2).digest()
    return "test" if int.from_bytes(digest, "big") < _TEST_SHARE * 2**16 else "train"


class Draw:
    """A source of random values, whose words, numbers and dates are all of one split."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.rng, self.split = rng, split

    def word(self) -> str:
        """Returns a word of 6 to 11 letters."""
        return self._draw_of_split(lambda: self.rng.choice(words()))

    def number(self, low: int, high: int) -> int:
        """Returns an integer from `low` to `high`."""
        return self._draw_of_split(lambda: self.rng.randint(low, high))

    def date(self, first: datetime.date, days: int) -> datetime.date:
        """Returns a date from `first` to `days` after it."""
        return self._draw_of_split(lambda: first + datetime.timedelta(self.rng.randint(0, days)))

    def names(self) -> list[str]:
        """Returns two different names of people."""
        return self.rng.sample(_NAMES, 2)

    def things(self) -> str:
        """Returns a plural of something that can be counted."""
        return self.rng.choice(_THINGS)

    def one_of(self, values: Sequence[T]) -> T:
        """Returns one of some values."""
        return self.rng.choice(values)

    def _draw_of_split(self, draw: Callable[[], T]) -> T:
        while split_of(value := draw()) != self.split:
            pass
        return value
