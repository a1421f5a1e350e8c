"""A small synthetic world: people, their towns and teachers, and the rivers of the towns.

Its facts cannot be known or guessed. It is the same on every machine.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from verl_agentic.tools.search.bm25 import Bm25Index
from verl_agentic.tools.search.local_retriever import LocalRetriever
from verl_agentic.tools.search.retriever import Passage

from .question import Hop, Question

SYNTHETIC = "synthetic"
"""The name of this corpus."""
_PEOPLE, _TOWNS = 4_800, 400
_SEED = 20_250
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_TAKEN = frozenset({"lives", "river", "towns"})


@dataclass(frozen=True, kw_only=True)
class World:
    """The place where each person lives."""

    home: dict[str, str]
    """Person -> town."""
    teacher: dict[str, str]
    """Person -> person."""
    river: dict[str, str]
    """Town -> river; every town has its own."""


@functools.lru_cache(maxsize=1)
def make_world() -> World:
    """Returns the world, which is always the same."""
    rng = random.Random(_SEED)
    names = _draw_names(rng, "CVCVC", _PEOPLE), _draw_names(rng, "CVCCVC", _TOWNS), _draw_names(rng, "VCVC", _TOWNS)
    people, towns, rivers = names
    # Every person teaches one other, so that a search for a name finds few passages.
    students = people[1:] + people[:1]
    homes = towns * (_PEOPLE // _TOWNS)
    rng.shuffle(homes)
    return World(
        home=dict(zip(people, homes, strict=True)),
        teacher=dict(zip(students, people, strict=True)),
        river=dict(zip(towns, rivers, strict=True)),
    )


def make_passages() -> list[Passage]:
    """Returns one passage for each person and each town."""
    world = make_world()
    people = {
        name: f"{name} lives in {home}. The teacher of {name} is {world.teacher[name]}."
        for name, home in world.home.items()
    }
    towns = {name: f"{name} lies on the river {river}." for name, river in world.river.items()}
    return [Passage(title=name, text=text, id=name) for name, text in {**people, **towns}.items()]


@functools.cache
def make_questions() -> tuple[Question, ...]:
    """Returns all questions: four about each person, two of them with one hop and two with two."""
    world = make_world()
    student_of = {teacher: student for student, teacher in world.teacher.items()}
    return tuple(question for person in world.home for question in _iter_questions(person, student_of[person], world))


@functools.lru_cache(maxsize=1)
def synthetic_retriever() -> LocalRetriever:
    """Returns the retriever of this process over the world; its index is kept in memory."""
    return LocalRetriever(lambda: Bm25Index.from_passages(make_passages(), fingerprint=SYNTHETIC))


def _iter_questions(person: str, student: str, world: World) -> Iterator[Question]:
    home, teacher = world.home[person], world.teacher[person]

    def ask(kind: str, text: str, answer: str, *names: str) -> Question:
        hops = tuple(Hop(query=name, passage_id=name) for name in names)
        return Question(id=f"{kind}-{person}", kind=kind, subject=person, text=text, answers=(answer,), hops=hops)

    yield ask("home", f"In which town does {person} live?", home, person)
    yield ask("teacher", f"Who is the teacher of {person}?", teacher, person)
    yield ask("river", f"On which river lies the town where {person} lives?", world.river[home], person, home)
    their_home = world.home[teacher]
    if their_home not in (home, world.home[student]):  # a search for the person finds these two
        yield ask("home2", f"In which town does the teacher of {person} live?", their_home, person, teacher)


def _draw_names(rng: random.Random, shape: str, count: int) -> list[str]:
    """Returns different names of a shape, in random order: `C` is a consonant, `V` a vowel."""
    names: dict[str, None] = {}
    while len(names) < count:
        name = "".join(rng.choice(_CONSONANTS if kind == "C" else _VOWELS) for kind in shape)
        if name not in _TAKEN:
            names[name.capitalize()] = None
    return list(names)
