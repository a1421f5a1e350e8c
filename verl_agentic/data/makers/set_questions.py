"""Questions whose only answer fulfils constraints, built backwards from the answer and expanded layer by layer.

Every constraint matters: without it, the answers change. So no constraint is a shortcut. The facts are those of the
generated world of `browse`, whose rows the questions are, or those of a file.

Papers: https://arxiv.org/abs/2507.15061 (WebShaper: knowledge projections, layer-wise expansion),
https://arxiv.org/abs/2504.12516 (BrowseComp)

Deviations: texts come from templates, and a model may reword them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask, needed
from verl_agentic.data.making.set_algebra import (
    AnyOf,
    Fact,
    Facts,
    Intersection,
    Named,
    Projection,
    Query,
    describe,
    expand,
    fault,
    names_in,
    relations_in,
    solve,
)
from verl_agentic.data.prepare import read_records
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.models.chat_model import ChatModel

_TRIES = 200
_SHOWN = 5
"""Results that a search of `browse` shows by default."""
_REWORD = (
    "Say the following question in natural words. Keep all conditions and every name as it is, and answer with the "
    "question alone.\n\n{}"
)
_FORM = "End with one line: FINAL ANSWER: and the answer, which is a name."


@dataclass(frozen=True, kw_only=True)
class _World:
    facts: Facts
    forward: Mapping[str, str]
    """Relation -> text of the object by its subject `{}`."""
    backward: Mapping[str, str]
    """Relation -> text of the subject by its object `{}`."""
    value_texts: Mapping[str, str] = field(default_factory=dict)
    """Value -> its text."""
    corpus: str = ""
    """Corpus of `browse`; empty for facts of a file."""
    search: Callable[[str], Sequence[str]] | None = None
    """Text -> titles of pages that a search shows; None for facts of a file."""


class SetQuestionsMaker(Settings):
    """Options."""

    facts: str = ""
    """File with `subject`, `relation`, `object`, and optionally the texts `forward` and `backward` of the relation with
    `{}` for the other thing. Empty: the world of `browse`."""
    layers: int = setting(1, min=0)
    """How often named things are replaced by descriptions."""
    max_parts: int = setting(3, min=1)
    """Maximum number of constraints on one thing."""
    reword: bool = False
    """Let the model reword the questions."""

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields questions."""
        chat = needed(model, "set_questions with reword") if self.reword else None
        for number in range(n):
            yield Candidate(
                key=f"{seed}-{number}", record=lambda number=number: self._make_question(f"{seed}/{number}", chat)
            )

    def list_cells(self) -> list[str]:
        """Returns the relations, see `CoveringMaker`."""
        return sorted({fact.relation for fact in _load_world(self.facts).facts.rows})

    def find_cells(self, record: Record) -> list[str]:
        """Returns the relations of a question."""
        return relations_in(from_json(json.loads(record["extra_info"]["query"])))

    async def make_for(
        self, cell: str, rows: Sequence[Record], *, seed: int, number: int, model: ChatModel | None
    ) -> Record:
        """Returns a question with a relation."""
        chat = needed(model, "set_questions with reword") if self.reword else None
        return await self._make_question(f"{seed}/{cell}/{number}", chat, relation=cell)

    async def verify(self, record: Record) -> str | None:
        """Returns why a question is wrong: no or several answers, a constraint without effect, or a shown answer."""
        world, query = _load_world(self.facts), from_json(json.loads(record["extra_info"]["query"]))
        if reason := fault(world.facts, query):
            return reason
        question, answer = record["prompt"][-1]["content"], record["reward_model"]["ground_truth"]
        if answer.casefold() in question.casefold():
            return f"the answer is shown: {answer}"
        lost = [name for name in names_in(query) if world.value_texts.get(name, name) not in question]
        return f"a name is lost: {lost}" if lost else None

    async def _make_question(self, seed: str, model: ChatModel | None, *, relation: str = "") -> Record:
        """Returns the first fit question of a series of draws; one with a relation, if a relation is named."""
        world, rng = _load_world(self.facts), random.Random(seed)
        things = sorted(world.facts.things)
        for _ in range(_TRIES):
            thing = rng.choice(things)
            query = describe(world.facts, rng, thing, avoid=frozenset({thing}), max_parts=self.max_parts)
            for _ in range(self.layers if query else 0):
                assert query is not None
                query = expand(world.facts, rng, query, avoid=frozenset({thing}), max_parts=self.max_parts)
            if query is None or (relation and relation not in relations_in(query)):
                continue
            if fault(world.facts, query) is None and _is_findable(world, query):
                break
        else:
            raise RefusedError(f"no question after {_TRIES} draws: there are {len(things)} things")
        text = f"What is the name of {_render_query(world, query)}?"
        if model is not None:
            text = await ask(model, _REWORD.format(text))
        return _make_row(world, text, query, thing)


def to_json(query: Query) -> dict[str, Any]:
    """Returns a query as JSON, for `from_json`."""
    if isinstance(query, Named):
        return {"name": query.name}
    if isinstance(query, Projection):
        return {"relation": query.relation, "is_forward": query.is_forward, "of": to_json(query.of)}
    return {"any" if isinstance(query, AnyOf) else "all": [to_json(part) for part in query.parts]}


def from_json(value: Mapping[str, Any]) -> Query:
    """Returns the query of `to_json`."""
    if "name" in value:
        return Named(name=value["name"])
    if "relation" in value:
        return Projection(relation=value["relation"], is_forward=value["is_forward"], of=from_json(value["of"]))
    kind = AnyOf if "any" in value else Intersection
    return kind(parts=tuple(from_json(part) for part in value.get("any") or value["all"]))


@functools.cache
def _load_world(path: str) -> _World:
    if not path:
        return _browse_world()
    rows, forward, backward = [], {}, {}
    for number, record in enumerate(read_records(Path(path))):
        try:
            fact = Fact(subject=record["subject"], relation=record["relation"], object=record["object"])
        except KeyError as cause:
            raise DataError(f"{path}: row {number} has no {cause}, got {sorted(record)}; add it") from cause
        rows.append(fact)
        forward[fact.relation] = record.get("forward") or f"the {fact.relation} of {{}}"
        backward[fact.relation] = record.get("backward") or f"has {{}} as {fact.relation}"
    return _World(facts=Facts(rows), forward=forward, backward=backward)


def _browse_world() -> _World:
    package = load_env_package("browse").make_env.__module__.rpartition(".")[0]
    world, library = (importlib.import_module(f"{package}.{name}") for name in ("world", "library"))
    rows = []
    for thing in world.make_world().things.values():
        rows += [Fact(subject=thing.name, relation=key, object=target) for key, target in thing.links.items()]
        rows += [
            Fact(subject=thing.name, relation=f"{thing.kind}.{fact}", object=f"{thing.kind}.{fact}={value}")
            for fact, value in thing.facts.items()
        ]
    return _World(
        facts=Facts(rows),
        forward={key: relation.forward for key, relation in world.RELATIONS.items()},
        backward={key: relation.backward for key, relation in world.RELATIONS.items()}
        | {f"{kind}.{fact}": text for kind, facts in world.FACTS.items() for fact, text in facts.items()},
        value_texts={
            f"{thing.kind}.{fact}={value}": value
            for thing in world.make_world().things.values()
            for fact, value in thing.facts.items()
        },
        corpus=library.WORLD,
        search=lambda text: [page.title for page in library.world_index().search(text, top_k=_SHOWN)],
    )


def _render_query(world: _World, query: Query) -> str:
    """Returns a description of the things that fulfil a query."""
    if isinstance(query, Named):
        return world.value_texts.get(query.name, query.name)
    if isinstance(query, Projection) and query.is_forward:
        return world.forward[query.relation].format(_render_query(world, query.of))
    parts = query.parts if isinstance(query, Intersection | AnyOf) else (query,)
    link = " or " if isinstance(query, AnyOf) else " and "
    return f"the one that {link.join(_render_clause(world, part) for part in parts)}"


def _render_clause(world: _World, query: Query) -> str:
    if isinstance(query, Projection) and not query.is_forward:
        return world.backward[query.relation].format(_render_query(world, query.of))
    return f"is {_render_query(world, query)}"


def _iter_steps(world: _World, query: Query) -> Iterator[tuple[str, str]]:
    """Yields searches and pages that lead from the named things to the answer."""
    if isinstance(query, Named):
        if query.name in world.facts.things:
            yield from (("search", query.name), ("open", query.name))
        return
    parts = query.parts if isinstance(query, Intersection | AnyOf) else (query,)
    for part in parts:
        yield from _iter_steps(world, part.of if isinstance(part, Projection) else part)
    if not (isinstance(query, Projection) and query.is_forward):  # else the page has a link
        yield "search", " ".join(_render_clause(world, _solve_inner(world, part)) for part in parts)
    yield from (("open", name) for name in solve(world.facts, query))


def _solve_inner(world: _World, query: Query) -> Query:
    """Returns a constraint on the name of the thing that it describes."""
    if not isinstance(query, Projection):
        return query
    (name,) = solve(world.facts, query.of)
    return replace(query, of=Named(name=name))


def _is_findable(world: _World, query: Query) -> bool:
    """Returns whether each search of the solution shows the page that is opened after it."""
    if world.search is None:
        return True
    pairs = pairwise(_iter_steps(world, query))
    return all(name in world.search(text) for (action, text), (_, name) in pairs if action == "search")


def _make_row(world: _World, text: str, query: Query, answer: str) -> Record:
    extra = {
        "task_id": f"set-{hashlib.sha256(text.encode()).hexdigest()[:10]}",
        "query": json.dumps(to_json(query), ensure_ascii=False),
    }
    if world.corpus:
        steps = json.dumps(list(dict.fromkeys(_iter_steps(world, query))))
        extra |= {"corpus": world.corpus, "kind": "name", "steps": steps}
    return {
        "data_source": "browse" if world.corpus else "set_questions",
        "prompt": [{"role": "user", "content": f"{text}\n\n{_FORM}"}],
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": extra,
        "agent_name": "env_agent",
    }


MAKER = SetQuestionsMaker
