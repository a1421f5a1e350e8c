"""Questions as inverted chains: from an answer along links, each thing described by the next, the last one by name.

Paper: https://arxiv.org/abs/2507.15061 (WebShaper: projections of a relation, and their intersections)

Deviations: chains are linear, every described thing is unique, and texts are made from templates instead of by a model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .world import FACTS, NUMBERS, RELATIONS, Thing, World

Kind = Literal["name", "number", "list"]
_MAX_LIST = 4
_PLURALS = {"person": "people", "town": "towns", "company": "companies", "book": "books", "festival": "festivals"}
_PLURAL_VERBS = {"was": "were", "has": "have", "works": "work", "takes": "take"}
_FILTERS = {"person": "occupation", "company": "product", "book": "genre", "festival": "month"}
"""Kind -> the fact that tells several sources of one target apart."""


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One projection: from a thing to the one that is described by it."""

    start: str
    relation: str
    is_forward: bool
    """Whether the page of `start` links to `end`."""
    end: str
    fact: str = ""
    """Fact of `end` that makes it unique among the sources; empty: it is the only one."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with its answer and the chain that leads to it, from the named thing on."""

    kind: Kind
    text: str
    answer: str
    hops: tuple[Hop, ...]


def make_question(world: World, rng: random.Random, *, hops: int, kind: Kind) -> Question | None:
    """Returns a random question, or None if this draw has no unique chain.

    Args:
        world: the pages.
        rng: source of every choice.
        hops: number of projections.
        kind: of the answer: the name of a thing, a number of its facts, or several names.
    """
    first = rng.choice(list(world.things.values()))
    chain = list(_iter_chain(world, rng, first, hops - (kind == "list")))[::-1]
    if len(chain) < hops - (kind == "list"):
        return None
    described = _describe_chain(world, chain, first)
    visited = {first.name, *(hop.start for hop in chain)}
    if len(visited) <= len(chain) or solve(world, chain) != {first.name}:
        return None
    if kind == "list":
        return _list_question(world, rng, first, described, chain)
    if kind == "name":
        text = f"What is the name of {described}?"
        return _drop_leaky(world, Question(kind=kind, text=text, answer=first.name, hops=tuple(chain)))
    fact = rng.choice([fact for fact in FACTS[first.kind] if fact in NUMBERS])
    text = NUMBERS[fact].format(described)
    return _drop_leaky(world, Question(kind=kind, text=text, answer=first.facts[fact], hops=tuple(chain)))


def solve(world: World, hops: Sequence[Hop]) -> set[str]:
    """Returns all things that fit the descriptions of a chain, found by its projections from the named thing."""
    names = {hops[0].start} if hops else set()
    for hop in hops:
        if hop.is_forward:
            names = {target for name in names if (target := world.things[name].links.get(hop.relation))}
            continue
        names = {source for name in names for source in world.sources.get((hop.relation, name), ())}
        if hop.fact:
            value = world.things[hop.end].facts[hop.fact]
            names = {name for name in names if world.things[name].facts[hop.fact] == value}
    return names


def _iter_chain(world: World, rng: random.Random, thing: Thing, hops: int) -> Iterator[Hop]:
    """Yields hops backwards from a thing: each describes it by another one. Ends early where there is none."""
    for _ in range(hops):
        choices = list(_hops_to(world, thing))
        if not choices:
            return
        hop = rng.choice(choices)
        yield hop
        thing = world.things[hop.start]


def _hops_to(world: World, thing: Thing) -> Iterator[Hop]:
    for name, relation in RELATIONS.items():
        if relation.target == thing.kind:
            for source in world.sources.get((name, thing.name), ()):
                yield Hop(start=source, relation=name, is_forward=True, end=thing.name)
    for name, target in thing.links.items():
        others = [world.things[other] for other in world.sources[name, target] if other != thing.name]
        fact = _FILTERS[thing.kind] if others else ""
        if all(other.facts[fact] != thing.facts[fact] for other in others):
            yield Hop(start=target, relation=name, is_forward=False, end=thing.name, fact=fact)


def _describe_chain(world: World, hops: Sequence[Hop], thing: Thing) -> str:
    described = hops[0].start if hops else thing.name
    for hop in hops:
        relation, end = RELATIONS[hop.relation], world.things[hop.end]
        if hop.is_forward:
            described = relation.forward.format(described)
            continue
        fact = f" and {FACTS[end.kind][hop.fact].format(end.facts[hop.fact])}" if hop.fact else ""
        pronoun = "who" if end.kind == "person" else "that"
        named = "the festival days" if end.kind == "festival" else f"the {end.kind}"
        described = f"{named} {pronoun} {relation.backward.format(described)}{fact}"
    return described


def _list_question(
    world: World, rng: random.Random, thing: Thing, described: str, chain: Sequence[Hop]
) -> Question | None:
    """Returns the question for all sources of a relation to a thing."""
    choices = [
        (name, world.sources[name, thing.name])
        for name, relation in RELATIONS.items()
        if relation.target == thing.kind and 2 <= len(world.sources.get((name, thing.name), ())) <= _MAX_LIST
    ]
    if not choices:
        return None
    name, sources = rng.choice(choices)
    relation = RELATIONS[name]
    verb, _, rest = relation.backward.format(described).partition(" ")
    question = f"Which {_PLURALS[relation.source]} {_PLURAL_VERBS.get(verb, verb)} {rest}?"
    text = f"{question} List all names in alphabetical order, separated by commas."
    last = Hop(start=thing.name, relation=name, is_forward=False, end=sources[0])
    return _drop_leaky(world, Question(kind="list", text=text, answer=", ".join(sorted(sources)), hops=(*chain, last)))


def _drop_leaky(world: World, question: Question) -> Question | None:
    """Returns the question unless it, or the page of the thing that it names, already shows a part of the answer."""
    texts = [question.text] + ([world.things[question.hops[0].start].page()] if len(question.hops) > 1 else [])
    parts = question.answer.split(", ")
    return None if any(part in text for part in parts for text in texts) else question
