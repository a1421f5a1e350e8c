"""Demonstrations: each kind does what it is named for, and the mixture leaves RL something to tell apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import get_args

import pytest

from verl_agentic import Message

from .demos import MIXTURE, Kind, demonstrator
from .rows import make_rows
from .synthetic import make_passages

ROWS = [
    *make_rows(split="train", count=40, seed=0),
    *make_rows(split="train", count=2, seed=0, corpus="docstrings"),
]
PASSAGES = {passage.title: passage.text for passage in make_passages()}


def play(row: object, kind: Kind, seed: int = 0) -> tuple[list[str], str]:
    """Returns the queries and the answer of a demonstration, with what each query is about as its result."""
    next_turn = demonstrator(row, rng=random.Random(seed), kind=kind)  # type: ignore[arg-type]
    messages: Sequence[Message] = row.prompt  # type: ignore[attr-defined]
    queries: list[str] = []
    while True:
        turn = next_turn(messages)
        messages = (*messages, turn)
        if not turn.tool_calls:
            return queries, turn.content
        queries.append(turn.tool_calls[0].arguments["query"])
        messages = (*messages, Message("tool", PASSAGES.get(queries[-1], "")))


@pytest.mark.parametrize("row", [*ROWS[:8], *ROWS[-2:]], ids=lambda row: row.extra["task_id"])
def test_only_a_search_finds_the_answer(row: object) -> None:
    truth, queries = row.ground_truth, row.extra["queries"]  # type: ignore[attr-defined]
    assert play(row, "search") == (queries, truth)
    assert play(row, "guess")[0] == [] and play(row, "guess")[1] != truth
    assert play(row, "misread")[0] == queries and play(row, "misread")[1] != truth
    (query,) = play(row, "wrong_query")[0]
    assert query not in queries and play(row, "wrong_query")[1] != truth


def test_the_mixture_names_every_kind_and_sums_to_1() -> None:
    assert set(MIXTURE) == set(get_args(Kind)) and sum(MIXTURE.values()) == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_demonstration() -> None:
    assert play(ROWS[0], "guess", 1) == play(ROWS[0], "guess", 1) != play(ROWS[0], "guess", 2)
