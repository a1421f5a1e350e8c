"""Dataset rows: questions about the generated world, or from the files of benchmarks."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Literal, get_args

from verl_agentic import ConfigError, EnvRow, Message

from .library import WORLD, world_index
from .question_files import Format, read_questions
from .questions import Hop, Kind, Question, make_question
from .world import FACTS, RELATIONS, World, make_world

Split = Literal["train", "test"]
_TEST_PART = 5  # a fifth of the named things is for tests
_MAX_MISSES = 1_000
_SHOWN = 5
"""Default number of results of a search; questions are checked with it."""
FORM = (
    "Search, open and find pages until you know the answer. End with one line: FINAL ANSWER: and the answer, which is "
    "a number, a few words, or a list separated by commas."
)


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    hops: int | None = None,
    kind: Kind | None = None,
    file: str = "",
    form: Format = "qa",
) -> list[EnvRow]:
    """Returns `count` different questions as dataset rows; equal arguments give equal rows.

    Args:
        split: train and test have different named things; questions of a file are for tests only.
        count: how many.
        seed: of the choice and the order.
        hops: length of the chain, 1 to 4; None: 2 and 3 in turn.
        kind: of the answer: `name`, `number` or `list`; None: in turn.
        file: questions of a benchmark, instead of generated ones.
        form: format of the file: `gaia`, `browsecomp`, `qa` or `criteria` (see `question_files`).

    Raises:
        ConfigError: an argument is invalid, or there are too few questions.
        DataError: the file cannot be read, or a column is missing.
    """
    if split not in get_args(Split) or kind not in (None, *get_args(Kind)) or form not in get_args(Format):
        raise ConfigError(
            f"split must be one of {get_args(Split)}, kind of {get_args(Kind)} or None, and form of {get_args(Format)},"
            f" got {split!r}, {kind!r} and {form!r}"
        )
    if file:
        return _of_file(split, count, seed, file, form)
    if hops not in (None, 1, 2, 3, 4) or (hops == 1 and kind == "list"):
        raise ConfigError(f"hops must be 1 to 4, or None, and 2 or more for lists, got {hops!r} and kind={kind!r}")
    kinds: Sequence[Kind] = [kind] if kind else get_args(Kind)
    return list(_generate_rows(split, count, seed, [hops] if hops else [2, 3], kinds))


def _generate_rows(split: Split, count: int, seed: int, hops: Sequence[int], kinds: Sequence[Kind]) -> Iterator[EnvRow]:
    world, rng = make_world(), random.Random(f"browse/{split}/{seed}")
    pairs: list[tuple[int, Kind]] = [(number, kind) for kind in kinds for number in hops]
    allowed_pairs = [pair for pair in pairs if pair != (1, "list")]  # its only hop would name all of them
    texts: set[str] = set()
    misses = 0
    while len(texts) < count:
        number, kind = allowed_pairs[len(texts) % len(allowed_pairs)]
        question = make_question(world, rng, hops=number, kind=kind)
        if question and question.text not in texts and _split_of(question) == split and _is_findable(world, question):
            texts.add(question.text)
            misses = 0
            yield _build_row(question)
            continue
        misses += 1
        if misses == _MAX_MISSES:
            raise ConfigError(
                f"there are hardly more than {len(texts)} questions for {split!r} with hops={list(hops)} and "
                f"kind={list(kinds)}, got count={count}; lower count"
            )


def search_for(world: World, hop: Hop) -> str:
    """Returns the search that finds the end of a backward hop."""
    end = world.things[hop.end]
    fact = FACTS[end.kind][hop.fact].format(end.facts[hop.fact]) if hop.fact else ""
    return f"{RELATIONS[hop.relation].backward.format(hop.start)} {fact}".strip()


def _is_findable(world: World, question: Question) -> bool:
    """Returns whether the searches of the solution show the pages that it opens."""
    index = world_index()
    searches = [(question.hops[0].start, [question.hops[0].start])]
    for place, hop in enumerate(question.hops):
        if not hop.is_forward:
            is_last = question.kind == "list" and place == len(question.hops) - 1
            searches.append((search_for(world, hop), question.answer.split(", ") if is_last else [hop.end]))
    return all(
        set(titles) <= {passage.title for passage in index.search(query, top_k=_SHOWN)} for query, titles in searches
    )


def _build_row(question: Question) -> EnvRow:
    world, digest = make_world(), hashlib.sha256(question.text.encode()).hexdigest()[:8]
    steps: list[list[str]] = [["search", question.hops[0].start], ["open", question.hops[0].start]]
    for hop in question.hops:
        steps += [] if hop.is_forward else [["search", search_for(world, hop)]]
        steps.append(["open", hop.end])
    return EnvRow(
        prompt=(Message("user", f"{question.text}\n\n{FORM}"),),
        ground_truth=question.answer,
        data_source="browse",
        extra={
            "task_id": f"{question.kind}-{len(question.hops)}-{digest}",
            "kind": question.kind,
            "hops": len(question.hops),
            "corpus": WORLD,
            "steps": json.dumps(steps),
            "chain": json.dumps([asdict(hop) for hop in question.hops]),
        },
    )


def _of_file(split: Split, count: int, seed: int, file: str, form: Format) -> list[EnvRow]:
    if split != "test":
        raise ConfigError(f"benchmarks are for evaluation, got split={split!r} of {file}; use split='test'")
    rows = []
    for question in read_questions(file, form):
        answers = list(question.answers)
        request = question.text if form == "criteria" else f"{question.text}\n\n{FORM}"
        rows.append(
            EnvRow(
                prompt=(Message("user", request),),
                ground_truth=answers[0] if len(answers) == 1 else answers,
                data_source=f"browse/{form}",
                extra={"task_id": question.id, "level": question.level, "is_open": form == "criteria", "steps": "[]"},
            )
        )
    random.Random(f"{split}/{seed}").shuffle(rows)
    if len(rows) < count:
        raise ConfigError(f"count must be at most {len(rows)} for {file}, got {count}")
    return rows[:count]


def _split_of(question: Question) -> Split:
    named = question.hops[0].start
    return "test" if hashlib.sha256(named.encode()).digest()[0] % _TEST_PART == 0 else "train"
