"""Browsing: the world of pages, inverted chains, the tools, and the match of answers."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import Action, ConfigError, DataError, EnvRow, Message, StopReason, ToolCall, Transcript, read_rows

from .demos import demonstrator
from .env import BrowseEnv, make_env
from .gold import gold
from .quasi_match import final_part, quasi_match
from .questions import Hop, make_question, solve
from .rows import make_rows
from .world import RELATIONS, Thing, World, make_world

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
NUM_ROWS = len(EXAMPLES) + 24


async def play(row: EnvRow, policy: Any, **config: Any) -> tuple[float, list[str]]:
    """Returns the outcome, and the observations."""
    env = make_env(row, **config)
    messages, actions, stop = list(await env.start()), [], None
    while stop is None:
        turn = policy(messages)
        actions.append(Action(turn=len(actions), text=turn.content, content=turn.content, tool_calls=turn.tool_calls))
        observation = await env.step(actions[-1])
        messages += [turn, *observation.messages]
        stop = observation.stop
    reward = await env.score(Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=stop))
    return reward.outcome, [message.content for message in messages if message.role == "tool"]


async def call(env: BrowseEnv, name: str, **arguments: Any) -> Message:
    action = Action(turn=0, text="", content="", tool_calls=(ToolCall(name, arguments),))
    return (await env.step(action)).messages[0]


def says(text: str) -> Any:
    return lambda messages: Message("assistant", text)


# The world and its questions.


def test_the_world_has_linked_pages_of_all_kinds() -> None:
    world = make_world()
    assert len(world.things) == 860 == len({name.lower() for name in world.things})
    for thing in world.things.values():
        page = thing.page()
        assert all(f"[[{target}]]" in page and target in world.things for target in thing.links.values())
        assert all(RELATIONS[relation].source == thing.kind for relation in thing.links)
        assert all(value in page for value in thing.facts.values())


@functools.cache
def list_rows() -> list[EnvRow]:
    return [*EXAMPLES, *make_rows(split="test", count=24, seed=2)]


@pytest.mark.parametrize("place", range(NUM_ROWS))
async def test_the_chain_leads_to_the_answer_and_only_to_it(place: int) -> None:
    row = list_rows()[place]
    outcome, pages = await play(row, gold(row))
    assert outcome == 1.0
    chain = [Hop(**hop) for hop in json.loads(row.extra["chain"])]
    names = solve(make_world(), chain)
    if row.extra["kind"] == "list":
        assert ", ".join(sorted(names)) == row.ground_truth
        assert all(name in pages[-2] for name in names)
    elif row.extra["kind"] == "name":
        assert names == {row.ground_truth}
    else:
        (name,) = names
        assert row.ground_truth in make_world().things[name].facts.values() and row.ground_truth in pages[-1]
    parts = row.ground_truth.split(", ")
    assert not any(part in text for part in parts for text in (row.prompt[0].content, pages[1]))
    assert len(chain) == row.extra["hops"]


def test_a_chain_that_fits_several_things_is_not_unique() -> None:
    world = make_world()
    (relation, target), sources = next(item for item in world.sources.items() if len(item[1]) > 2)
    hop = Hop(start=target, relation=relation, is_forward=False, end=sources[0])
    assert solve(world, [hop]) == set(sources)
    forward = Hop(start=sources[0], relation=relation, is_forward=True, end=target)
    assert solve(world, [forward]) == {target} and solve(world, [forward, hop]) == set(sources)


def test_a_question_whose_descriptions_fit_several_things_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    world, rng = make_world(), random.Random(0)

    def ambiguous(world: World, thing: Thing) -> Iterator[Hop]:
        return (Hop(start=target, relation=r, is_forward=False, end=thing.name) for r, target in thing.links.items())

    monkeypatch.setattr(f"{solve.__module__}._hops_to", ambiguous)
    drawn = [make_question(world, rng, hops=1, kind="name") for _ in range(400)]
    questions = [question for question in drawn if question is not None]
    assert 0 < len(questions) < 200 and all(solve(world, question.hops) == {question.answer} for question in questions)


def test_rows_have_the_chosen_length_and_kind_and_splits_share_no_question() -> None:
    rows = make_rows(split="train", count=6, seed=0, hops=4, kind="number")
    assert {(row.extra["hops"], row.extra["kind"]) for row in rows} == {(4, "number")}
    short = make_rows(split="train", count=4, seed=0, hops=1)
    assert {(row.extra["hops"], row.extra["kind"]) for row in short} == {(1, "name"), (1, "number")}
    mixed = make_rows(split="train", count=12, seed=0)
    assert {(row.extra["hops"], row.extra["kind"]) for row in mixed} == {
        (hops, kind) for hops in (2, 3) for kind in ("name", "number", "list")
    }
    named = [
        {json.loads(row.extra["chain"])[0]["start"] for row in rows}
        for rows in (make_rows(split="train", count=60, seed=0), make_rows(split="test", count=60, seed=0))
    ]
    assert not named[0] & named[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"hops": 5}, "hops"), ({"hops": 1, "kind": "list"}, "lists"), ({"kind": "date"}, "'train'")],
)
def test_impossible_wishes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_rows(**{"split": "train", "count": 1, "seed": 0, **options})


def test_too_many_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{make_rows.__module__}._MAX_MISSES", 5)
    with pytest.raises(ConfigError, match="hops"):
        make_rows(split="test", count=500, seed=0, hops=4)


@pytest.mark.parametrize(("kind", "mean"), [("careful", 1.0), ("stops_early", 0.0), ("guesses", 0.0)])
async def test_demonstrations_differ_in_quality(kind: Any, mean: float) -> None:
    outcomes = [(await play(row, demonstrator(row, rng=random.Random(0), kind=kind)))[0] for row in list_rows()]
    assert sum(outcomes) / NUM_ROWS == mean


# Tools.


async def test_a_page_is_searched_opened_and_searched_in() -> None:
    env = make_env(EXAMPLES[0], top_k=2)
    await env.start()
    name = json.loads(EXAMPLES[0].extra["steps"])[0][1]
    result = (await call(env, "search", query=name)).content
    assert result.startswith(f"1. {name}: ") and len(result.split("\n")) == 2
    assert (await call(env, "find", text="x")).content == "Error: no page is open; open one first"
    page = (await call(env, "open", title=f"[[{name.upper()}]]")).content
    assert page == make_world().things[name].page()
    place = (await call(env, "find", text=name.upper())).content
    assert place.startswith("(part 1) ... ") and name in place
    assert (await call(env, "find", text="no such text")).content == "Not on this page."
    assert (await call(env, "search", query="qqqq")).content == "No page fits this query."


async def test_a_long_page_of_a_folder_has_parts(tmp_path: Path) -> None:
    passages = [
        {"id": "1", "title": "Cats", "text": "Cats sleep. " * 30},
        {"id": "2", "title": "Dogs", "text": "Dogs bark."},
        {"id": "3", "title": "Cats", "text": "At the end they purr."},
    ]
    (tmp_path / "pages.jsonl").write_text("\n".join(json.dumps(passage) for passage in passages))
    row = EnvRow(prompt=(Message("user", "What do cats do at the end?"),), ground_truth="purr")
    env = make_env(row, corpus=str(tmp_path), part_chars=200)
    await env.start()
    first = await call(env, "open", title="cats")
    assert first.content.startswith("(part 1 of 2)\nCats sleep.")
    assert "(part 2) ... " in (await call(env, "find", text="PURR")).content
    assert (await call(env, "open", title="cats", part=2)).content.endswith("At the end they purr.")
    assert (await call(env, "open", title="cats", part=3)).content == "Error: part must be 1 to 2"
    assert "no page of this title" in (await call(env, "open", title="Birds")).content
    assert (await call(env, "find", text="cats sleep")).content.count("\n") == 10
    with pytest.raises(ConfigError, match="'world'"):
        await make_env(EXAMPLES[0], corpus=str(tmp_path)).start()


# Answers.


@pytest.mark.parametrize(
    ("answer", "truth", "is_match"),
    [
        ("$1,234.50", "1234.5", True),
        ("17%", "17", True),
        ("17 apples", "17", False),
        ("seventeen", "17", False),
        ("nan", "nan", True),
        ("the Eiffel  tower!", "The Eiffel Tower", True),
        ("Eiffel Tower", "The Eiffel Tower", False),
        ("b, e", "b, e", True),
        ("B;E", "b, e", True),
        ("e, b", "b, e", False),
        ("b, e, f", "b, e", False),
        ("3.0, 4", "3, 4", True),
        ("3, 5", "3, 4", False),
        ("", "b", False),
        ("1,234", "1,234", True),
        ("x" * 20_000, "x", False),
    ],
)
def test_answers_match_as_numbers_lists_or_strings(answer: str, truth: str, is_match: bool) -> None:
    assert quasi_match(answer, truth) is is_match


def test_the_final_answer_is_what_follows_its_marker() -> None:
    assert final_part("It was 3.\nFinal answer: 4\nFINAL ANSWER: 5 ") == "5"
    assert final_part(" 5 ") == "5"


@pytest.mark.parametrize("text", ["I do not know.", "", "FINAL ANSWER:", "{answer} or not", "<think>{answer}</think>"])
async def test_what_is_not_the_answer_scores_0(text: str) -> None:
    for row in EXAMPLES:
        assert (await play(row, says(text.format(answer=row.ground_truth))))[0] == 0.0


async def test_an_answer_that_a_budget_cuts_scores_0() -> None:
    row, env = EXAMPLES[0], make_env(EXAMPLES[0])
    action = Action(turn=0, text="", content=f"FINAL ANSWER: {row.ground_truth}")
    outcomes = [
        (await env.score(Transcript(messages=row.prompt, actions=(action,), stop_reason=stop))).outcome
        for stop in (StopReason.ANSWERED, StopReason.MAX_TOKENS)
    ]
    assert outcomes == [1.0, 0.0]


async def test_one_of_several_right_answers_is_enough() -> None:
    row = EnvRow(prompt=(Message("user", "?"),), ground_truth=["NYC", "New York"])
    assert [(await play(row, says(text)))[0] for text in ("new york", "York")] == [1.0, 0.0]


async def test_the_metric_rubric_leaves_the_outcome_to_a_rubric() -> None:
    row = replace(EXAMPLES[0], ground_truth="- is polite", extra={"task_id": "open-1", "is_open": True})
    env = make_env(row, metric="rubric")
    reward = await env.score(Transcript(messages=(), actions=(), stop_reason=StopReason.ANSWERED))
    assert not reward.is_scored
    with pytest.raises(ConfigError, match="'open-1'"):
        make_env(row)


@pytest.mark.parametrize(("config", "message"), [({"metric": "f1"}, "metric"), ({"top_k": 0}, "4000")])
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(EXAMPLES[0], **config)
    with pytest.raises(DataError, match="ground_truth"):
        make_env(replace(EXAMPLES[0], ground_truth=None))
