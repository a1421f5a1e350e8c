"""Questions as set algebra over facts: projections of a relation, intersections and unions.

Paper: https://arxiv.org/abs/2507.15061 (WebShaper: knowledge projections, their union and intersection)
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One row of a table of facts."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True, kw_only=True)
class Named:
    """The set of one thing."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Projection:
    """R(V): the things that a relation links with those of a set."""

    relation: str
    of: Query
    is_forward: bool
    """Objects of the facts whose subject is in the set; else their subjects."""


@dataclass(frozen=True, kw_only=True)
class Intersection:
    """The things that fulfil all parts."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, kw_only=True)
class AnyOf:
    """The things that fulfil at least one part."""

    parts: tuple[Query, ...]


Query = Named | Projection | Intersection | AnyOf


@dataclass(frozen=True)
class Facts:
    """A table of facts."""

    rows: Sequence[Fact]

    @cached_property
    def objects(self) -> dict[tuple[str, str], frozenset[str]]:
        """(relation, subject) -> objects."""
        return self._group_facts("subject", "object")

    @cached_property
    def subjects(self) -> dict[tuple[str, str], frozenset[str]]:
        """(relation, object) -> subjects."""
        return self._group_facts("object", "subject")

    @cached_property
    def things(self) -> frozenset[str]:
        """Things with facts of their own; the others are values."""
        return frozenset(fact.subject for fact in self.rows)

    @cached_property
    def of_thing(self) -> dict[str, list[Fact]]:
        """Thing -> facts that it is in."""
        facts_by_thing: dict[str, list[Fact]] = {}
        for fact in self.rows:
            for name in {fact.subject, fact.object}:
                facts_by_thing.setdefault(name, []).append(fact)
        return facts_by_thing

    def _group_facts(self, key_field: str, value_field: str) -> dict[tuple[str, str], frozenset[str]]:
        groups: dict[tuple[str, str], set[str]] = {}
        for fact in self.rows:
            groups.setdefault((fact.relation, getattr(fact, key_field)), set()).add(getattr(fact, value_field))
        return {key: frozenset(values) for key, values in groups.items()}


def solve(facts: Facts, query: Query) -> frozenset[str]:
    """Returns the things that fulfil a query."""
    if isinstance(query, Named):
        return frozenset({query.name})
    if isinstance(query, Projection):
        links = facts.objects if query.is_forward else facts.subjects
        return frozenset().union(*(links.get((query.relation, name), ()) for name in solve(facts, query.of)))
    sets = [solve(facts, part) for part in query.parts]
    return frozenset.union(*sets) if isinstance(query, AnyOf) else frozenset.intersection(*sets)


def without_one(query: Query) -> Iterator[Query]:
    """Yields the query without each one of its constraints, at every depth."""
    if isinstance(query, Projection):
        yield from (replace(query, of=inner) for inner in without_one(query.of))
    elif isinstance(query, Intersection | AnyOf):
        for index, part in enumerate(query.parts):
            before, after = query.parts[:index], query.parts[index + 1 :]
            if before + after:
                yield replace(query, parts=before + after)
            yield from (replace(query, parts=(*before, inner, *after)) for inner in without_one(part))


def names_in(query: Query) -> list[str]:
    """Returns the things that a query names."""
    if isinstance(query, Named):
        return [query.name]
    parts = (query.of,) if isinstance(query, Projection) else query.parts
    return [name for part in parts for name in names_in(part)]


def relations_in(query: Query) -> list[str]:
    """Returns the relations that a query uses."""
    if isinstance(query, Named):
        return []
    if isinstance(query, Projection):
        return [query.relation, *relations_in(query.of)]
    return [relation for part in query.parts for relation in relations_in(part)]


def fault(facts: Facts, query: Query) -> str | None:
    """Returns why a query is no question with one answer in which every constraint matters; None if it is."""
    answers = solve(facts, query)
    if len(answers) != 1:
        return f"not one answer: {sorted(answers)[:5]}"
    if answers & set(names_in(query)):
        return f"the answer is named: {sorted(answers)}"
    if any(solve(facts, less) == answers for less in without_one(query)):
        return "a constraint does not matter"
    return None


def describe(facts: Facts, rng: random.Random, thing: str, *, avoid: frozenset[str], max_parts: int) -> Query | None:
    """Returns constraints that only one thing fulfils, each of which is needed; None if this draw finds none.

    Args:
        facts: the table.
        rng: source of the choice.
        thing: to describe.
        avoid: things that must not be named.
        max_parts: maximum number of constraints.
    """
    if thing not in facts.things:
        return None
    links = [fact for fact in facts.of_thing[thing] if not {fact.subject, fact.object} & (avoid - {thing})]
    parts: list[Query] = []
    for fact in rng.sample(links, len(links)):
        is_forward = fact.object == thing
        other = fact.subject if is_forward else fact.object
        parts.append(Projection(relation=fact.relation, of=Named(name=other), is_forward=is_forward))
        if solve(facts, Intersection(parts=tuple(parts))) == {thing}:
            break
    else:
        return None
    for part in list(parts):
        rest = tuple(other for other in parts if other is not part)
        if rest and solve(facts, Intersection(parts=rest)) == {thing}:
            parts.remove(part)
    if len(parts) > max_parts:
        return None
    return parts[0] if len(parts) == 1 else Intersection(parts=tuple(parts))


def expand(facts: Facts, rng: random.Random, query: Query, *, avoid: frozenset[str], max_parts: int) -> Query:
    """Returns the query with each named thing replaced by a description of it, where there is one (one layer)."""
    if isinstance(query, Named):
        description = describe(facts, rng, query.name, avoid=avoid | {query.name}, max_parts=max_parts)
        return description or query
    if isinstance(query, Projection):
        return replace(query, of=expand(facts, rng, query.of, avoid=avoid, max_parts=max_parts))
    parts = tuple(expand(facts, rng, part, avoid=avoid, max_parts=max_parts) for part in query.parts)
    return replace(query, parts=parts)
