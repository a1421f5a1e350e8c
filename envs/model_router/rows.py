"""Dataset rows: questions about the world that need one or two routes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Literal

from verl_agentic import ConfigError, EnvRow, Message

from .world import make_world

Split = Literal["train", "test"]
_TEST_SHARE = 0.2


def make_rows(*, split: Split, count: int, seed: int) -> list[EnvRow]:
    """Returns `count` different questions; equal arguments give equal rows.

    Test and training questions are about different people. Kinds of questions alternate.

    Raises:
        ConfigError: there are too few questions.
    """
    people = [person for person in make_world().home if _split_of(person) == split]
    random.Random(f"{split}/{seed}").shuffle(people)
    rows = [row for person in people for row in _iter_rows(person)]
    if not 0 <= count <= len(rows):
        raise ConfigError(f"count must be 0 to {len(rows)} for split {split!r}, got {count}")
    return rows[:count]


def _split_of(person: str) -> Split:
    share = int.from_bytes(hashlib.blake2b(person.encode(), digest_size=4).digest(), "big") / 2**32
    return "test" if share < _TEST_SHARE else "train"


def _iter_rows(person: str) -> Iterator[EnvRow]:
    world = make_world()
    home = f"census-8b: In which town does {person} live?"
    town = world.home[person]
    yield _build_row(f"home-{person}", home.partition(": ")[2], town, [home])
    teacher = f"census-8b: Who is the teacher of {person}?"
    yield _build_row(f"teacher-{person}", teacher.partition(": ")[2], world.teacher[person], [teacher])
    river = f"On which river lies the town where {person} lives?"
    yield _build_row(f"river-{person}", river, world.river[town], [home, f"atlas-8b: On which river lies {town}?"])


def _build_row(task_id: str, question: str, answer: str, queries: list[str]) -> EnvRow:
    return EnvRow(
        prompt=(Message("user", question),),
        ground_truth=answer,
        data_source="model_router",
        extra={"task_id": task_id, "queries": queries},
    )
