"""everyday validated: the right answer scores 1, everything else 0, and the splits share nothing."""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import ConfigError, EnvRow, Episode, EpisodeLimits, Message, read_rows, run_episode, scripted
from verl_agentic.cpu.testing import tiny_codecs

from .demos import MIXTURE, Kind, demonstrator, gold
from .draw import split_of, words
from .env import make_env
from .kinds import KINDS
from .rows import make_rows

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
LIMITS = EpisodeLimits(max_response_tokens=600, max_context_tokens=1000, max_turns=3)
TRAIN, TEST = (make_rows(split=split, count=900, seed=1) for split in ("train", "test"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"))
    return tokenizer, codecs["chat"]


async def play(chat: Any, row: EnvRow, turn: Any) -> Episode:
    tokenizer, codec = chat
    setup = scripted(turn, codec=codec, tokenizer=tokenizer, limits=LIMITS)
    return await run_episode(row, make_env=make_env, setup=setup, request_id="r")


def question(row: EnvRow) -> str:
    return row.prompt[-1].content


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row.extra["kind"])
async def test_the_solution_scores_1_through_the_tool(chat: Any, row: EnvRow) -> None:
    episode = await play(chat, row, gold(row))
    assert episode.reward.outcome == 1.0
    assert episode.numbers()["tool_calls"] == 1.0 and episode.numbers()["tool_errors"] == 0.0


def test_the_examples_show_every_kind_of_both_splits() -> None:
    assert {row.extra["kind"] for row in EXAMPLES} == set(KINDS)
    rows = [*make_rows(split="train", count=9, seed=0), *make_rows(split="test", count=9, seed=0)]
    assert [question(row) for row in EXAMPLES] == [question(row) for row in rows]


def test_the_code_of_every_row_prints_its_answer() -> None:
    for row in [*TRAIN, *TEST]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(row.extra["code"], {})
        assert printed.getvalue() == f"{row.ground_truth}\n", question(row)


def test_the_splits_share_no_word_number_date_or_question() -> None:
    all_words = set(words())
    values = [
        {value for row in rows for value in re.findall(r"[a-z]{6,}|\d{5}|\d+-\d+-\d+", row.extra["code"])}
        for rows in (TRAIN, TEST)
    ]
    for parts, split in zip(values, ("train", "test"), strict=True):
        drawn = {value for value in parts if value in all_words or value.isdigit()}
        assert len(drawn) > 300 and {split_of(value) for value in drawn} == {split}
    dates = [set(re.findall(r"\d+-\d+-\d+", question(row))) for row in [*TRAIN, *TEST]]
    assert {split_of(date) for parts in dates[:900] for date in parts} == {"train"}
    assert {split_of(date) for parts in dates[900:] for date in parts} == {"test"}
    assert not {question(row) for row in TRAIN} & {question(row) for row in TEST}


@pytest.mark.parametrize("kind", KINDS)
def test_one_wording_of_each_kind_is_held_out(kind: str) -> None:
    def forms(rows: list[EnvRow]) -> set[str]:
        hidden = r'"?\b[a-z]{6,}\b"?|\d[\d-]*|\b[A-Z][a-z]+\b|"?\b[a-z]\b"?'
        return {re.sub(hidden, "#", question(row)) for row in rows if row.extra["kind"] == kind}

    old, new = (
        make_rows(split="test", count=60, seed=3, kinds=kind, wordings=wordings) for wordings in ("seen", "new")
    )
    assert not any(row.extra["is_new_wording"] for row in [*TRAIN, *old]) and all(
        row.extra["is_new_wording"] for row in new
    )
    assert not forms(new) & forms([*TRAIN, *old])


def test_rows_repeat_for_equal_arguments_and_kinds_take_turns() -> None:
    rows = make_rows(split="train", count=12, seed=7, kinds="sums+letters")
    assert rows == make_rows(split="train", count=12, seed=7, kinds="sums+letters")
    assert rows != make_rows(split="train", count=12, seed=8, kinds="sums+letters")
    assert [row.extra["kind"] for row in rows] == ["sums", "letters"] * 6
    assert len({question(row) for row in TRAIN}) == len({row.extra["task_id"] for row in TRAIN}) == 900


def test_unknown_options_and_more_rows_than_there_are_questions_are_refused() -> None:
    unknown: Any = "other"
    with pytest.raises(ConfigError, match="'poems'"):
        make_rows(split="train", count=1, seed=0, kinds="letters+poems")
    with pytest.raises(ConfigError, match="wordings"):
        make_rows(split="test", count=1, seed=0, wordings=unknown)
    with pytest.raises(ConfigError, match="'backwards'"):
        make_rows(split="test", count=10**6, seed=0, kinds="backwards")


SUM = EnvRow(prompt=(Message("user", "q"),), ground_truth="110359", data_source="everyday", extra={"task_id": "a"})
DAY = EnvRow(prompt=(Message("user", "q"),), ground_truth="Monday", data_source="everyday", extra={"task_id": "b"})


@pytest.mark.parametrize(
    ("row", "answer", "outcome"),
    [
        (SUM, "110359", 1), (SUM, "110,359", 1), (SUM, ' "110359". ', 1), (SUM, r"It is \boxed{110359}", 1),
        (SUM, "11,0359", 0), (SUM, "110358", 0), (SUM, "110359 or 110358", 0), (SUM, "", 0), (SUM, "-110359", 0),
        (SUM, r"110359 \boxed{1}", 0), (SUM, "47251 + 63108", 0), (DAY, "monday", 1), (DAY, "Monday Tuesday", 0),
    ],
)  # fmt: skip
async def test_form_does_not_count_and_more_than_one_answer_does_not_pass(
    chat: Any, row: EnvRow, answer: str, outcome: float
) -> None:
    episode = await play(chat, row, lambda messages: answer)
    assert not episode.is_void and episode.reward.outcome == outcome


async def test_an_answer_that_only_the_tool_gave_scores_0(chat: Any) -> None:
    row = EXAMPLES[0]
    call = gold(row)(row.prompt)
    assert (await play(chat, row, lambda messages: call)).reward.outcome == 0.0


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kind", "right", "calls"), [("tool", 1.0, 1), ("guess", 0.15, 0), ("flawed", 0.15, 1)])
async def test_each_kind_of_demonstration_does_what_it_is_named_for(
    chat: Any, kind: Kind, right: float, calls: int
) -> None:
    outcomes = []
    for index, row in enumerate(TRAIN[:45]):
        episode = await play(chat, row, demonstrator(row, rng=random.Random(index), kind=kind))
        assert not episode.is_void and episode.numbers()["tool_calls"] == calls
        outcomes.append(episode.reward.outcome)
    assert sum(outcomes) / 45 == 1.0 if kind == "tool" else sum(outcomes) / 45 <= right


def test_the_mixture_is_drawn_as_it_says() -> None:
    assert sum(MIXTURE.values()) == pytest.approx(1.0)
    turns = [demonstrator(row, rng=random.Random(i))(row.prompt) for i, row in enumerate(TRAIN)]
    shares = Counter(bool(turn.tool_calls) for turn in turns)
    assert shares[False] / len(TRAIN) == pytest.approx(MIXTURE["guess"], abs=0.06)  # standard deviation 0.017
