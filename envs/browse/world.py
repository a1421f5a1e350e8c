"""A generated world of linked pages: people, towns, companies, books and festivals.

Its facts cannot be known or guessed, and it is the same on every machine.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_agentic.tools.search.retriever import Passage

_SEED = 20_263
_SIZES = {"town": 60, "person": 400, "company": 120, "book": 200, "festival": 80}
_SHAPES = {
    "town": "CVCCVC",
    "person": "CVCV CVCVC",
    "company": "CVCVCV Works",
    "book": "The CVC of CVCCV",
    "festival": "CVCVC Days",
}
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_OCCUPATIONS = (
    "baker",
    "botanist",
    "carpenter",
    "chemist",
    "composer",
    "judge",
    "nurse",
    "painter",
    "pilot",
    "surveyor",
)
_REGIONS = ("north", "south", "east", "west")
_PRODUCTS = ("bicycles", "clocks", "glass", "ink", "lamps", "paper", "pianos", "rope", "soap", "tiles")
_GENRES = ("novel", "cookbook", "biography", "travelogue", "mystery")
_MONTHS = ("March", "May", "June", "August", "October")
_MAX_DISTRACTIONS = 2


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A fact that links two things; every source has one target."""

    source: str
    """Kind of the source."""
    target: str
    """Kind of the target."""
    forward: str
    """Description of the target by its source `{}`."""
    backward: str
    """Description of the source by its target `{}`, after `who` or `that`."""
    sentence: str
    """Sentence on the source's page: `{name}`, `{target}`."""


RELATIONS: Mapping[str, Relation] = {
    "born_in": Relation(
        source="person", target="town", forward="the town where {} was born", backward="was born in {}",
        sentence="{name} was born in {target}.",
    ),
    "works_for": Relation(
        source="person", target="company", forward="the company that {} works for", backward="works for {}",
        sentence="{name} works for {target}.",
    ),
    "based_in": Relation(
        source="company", target="town", forward="the town where {} has its seat", backward="has its seat in {}",
        sentence="{name} has its seat in {target}.",
    ),
    "founded_by": Relation(
        source="company", target="person", forward="the person who founded {}", backward="was founded by {}",
        sentence="{name} was founded by {target}.",
    ),
    "written_by": Relation(
        source="book", target="person", forward="the author of {}", backward="was written by {}",
        sentence="{name} was written by {target}.",
    ),
    "set_in": Relation(
        source="book", target="town", forward="the town where {} takes place", backward="takes place in {}",
        sentence="{name} takes place in {target}.",
    ),
    "held_in": Relation(
        source="festival", target="town", forward="the town where {} are held", backward="are held in {}",
        sentence="{name} are held in {target}.",
    ),
    "started_by": Relation(
        source="festival", target="person", forward="the person who started {}", backward="were started by {}",
        sentence="{name} were started by {target}.",
    ),
}  # fmt: skip
FACTS: Mapping[str, Mapping[str, str]] = {
    "person": {"occupation": "is a {}", "birth_year": "was born in the year {}"},
    "town": {"region": "lies in the {} of the country", "population": "has {} inhabitants"},
    "company": {"product": "makes {}", "founded": "was founded in the year {}", "employees": "has {} employees"},
    "book": {"genre": "is a {}", "published": "was published in the year {}", "pages": "has {} pages"},
    "festival": {"month": "take place every {}", "since": "began in the year {}"},
}
"""Kind -> fact -> text of its value, after the name or `who` or `that`."""
NUMBERS: Mapping[str, str] = {
    "birth_year": "In which year was {} born?",
    "population": "How many inhabitants does {} have?",
    "founded": "In which year was {} founded?",
    "employees": "How many employees does {} have?",
    "published": "In which year was {} published?",
    "pages": "How many pages does {} have?",
    "since": "In which year did {} begin?",
}
"""Facts that are numbers, and the question for each."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A person, town, company, book or festival, with its page."""

    name: str
    kind: str
    links: Mapping[str, str]
    """Relation -> name of its target."""
    facts: Mapping[str, str]
    mentions: Sequence[str]
    """Other pages that are linked without a relation."""

    def page(self) -> str:
        """Returns the text of the page; links are in double square brackets."""
        lines = [f"{self.name} {FACTS[self.kind][fact].format(value)}." for fact, value in self.facts.items()]
        lines += [
            RELATIONS[relation].sentence.format(name=self.name, target=f"[[{target}]]")
            for relation, target in self.links.items()
        ]
        if self.mentions:
            lines.append(f"See also: {', '.join(f'[[{name}]]' for name in self.mentions)}.")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class World:
    """All things, and the sources of each target."""

    things: Mapping[str, Thing]
    sources: Mapping[tuple[str, str], tuple[str, ...]]
    """(relation, target) -> names of its sources."""

    def passages(self) -> list[Passage]:
        """Returns the pages for an index."""
        return [Passage(title=thing.name, text=thing.page(), id=thing.name) for thing in self.things.values()]


@functools.cache
def make_world() -> World:
    """Returns the world, which is always the same."""
    rng = random.Random(_SEED)
    names = {kind: _draw_names(rng, _SHAPES[kind], size) for kind, size in _SIZES.items()}
    everything = [name for kind in names.values() for name in kind]
    things: dict[str, Thing] = {}
    for kind, members in names.items():
        for name in members:
            relations = (item for item in RELATIONS.items() if item[1].source == kind)
            links = {key: rng.choice(names[relation.target]) for key, relation in relations}
            mentions = [other for other in rng.sample(everything, rng.randint(0, _MAX_DISTRACTIONS)) if other != name]
            things[name] = Thing(name=name, kind=kind, links=links, facts=_draw_facts(rng, kind), mentions=mentions)
    sources: dict[tuple[str, str], tuple[str, ...]] = {}
    for thing in things.values():
        for relation, target in thing.links.items():
            sources[relation, target] = (*sources.get((relation, target), ()), thing.name)
    return World(things=things, sources=sources)


def _draw_facts(rng: random.Random, kind: str) -> dict[str, str]:
    choices: Mapping[str, Sequence[str] | range] = {
        "occupation": _OCCUPATIONS, "birth_year": range(1870, 1990), "region": _REGIONS,
        "population": range(800, 90_000), "product": _PRODUCTS, "founded": range(1790, 1990),
        "employees": range(12, 4_000), "genre": _GENRES, "published": range(1850, 2010), "pages": range(60, 900),
        "month": _MONTHS, "since": range(1700, 2000),
    }  # fmt: skip
    return {fact: str(rng.choice(choices[fact])) for fact in FACTS[kind]}


def _draw_names(rng: random.Random, shape: str, count: int) -> list[str]:
    """Returns different names of a shape: in words of `C` and `V`, consonants and vowels."""
    names: dict[str, None] = {}
    while len(names) < count:
        words = [_draw_word(rng, word) if set(word) <= {"C", "V"} else word for word in shape.split()]
        names[" ".join(words)] = None
    return list(names)


def _draw_word(rng: random.Random, shape: str) -> str:
    return "".join(rng.choice(_CONSONANTS if kind == "C" else _VOWELS) for kind in shape).capitalize()
