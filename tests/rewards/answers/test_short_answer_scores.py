"""Exact match and F1 of short answers, against the numbers of the reference implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.rewards.answers.short_answers import (
    exact_match,
    f1,
    golden_answers_of,
    has_research_form,
    research_reward,
)

BOXED = r"<think>so</think> <answer>it is \boxed{Obama}</answer>"


@pytest.mark.parametrize(
    ("answer", "golden", "score"),
    [  # vectors.json, V-SEARCHR1
        ("The Beatles.", ["Beatles"], 1.0),
        ("beatles band", ["Beatles"], 0.0),
        ("U.S.", ["US"], 1.0),
        ("", ["a"], 0.0),  # 1 in the original, where both normalise to nothing
        ("co-op", ["coop"], 1.0),
    ],
)
def test_exact_match_is_search_r1s(answer: str, golden: list[str], score: float) -> None:
    assert exact_match(answer, golden) == score


def test_any_golden_answer_will_do_and_none_is_no_match() -> None:
    golden = ["New York City", "NYC"]
    assert [exact_match(answer, golden) for answer in ("nyc", "new york city", "New York")] == [1.0, 1.0, 0.0]
    # 2 shared words of 2 and 3: F1 = 2 * 2 / 5; with `NYC` none.
    assert f1("New York", golden) == pytest.approx(0.8)
    assert (exact_match("x", []), f1("x", [])) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "golden", "score", "rewarded"),
    [  # vectors.json, V-RESEARCH
        ("Barack Obama", "Obama", 0.666667, 0.666667),
        ("president barack hussein obama", "barack obama", 0.666667, 0.666667),
        ("yes", "yes it is", 0.0, 0.1),
        ("paris france", "rome", 0.0, 0.1),
    ],
)
def test_f1_and_the_reward_made_of_it_are_researchs(answer: str, golden: str, score: float, rewarded: float) -> None:
    assert f1(answer, [golden]) == pytest.approx(score, abs=1e-6)
    assert research_reward(answer, [golden], is_well_formed=True) == pytest.approx(rewarded, abs=1e-6)
    assert research_reward(answer, [golden], is_well_formed=False) == 0.0


def test_repeated_words_count_as_often_as_they_come_on_both_sides() -> None:
    # `new` is shared once: 2 * 1 / (3 + 2).
    assert f1("new new new", ["new york"]) == pytest.approx(0.4)
    assert (f1("yes", ["yes"]), f1("", ["x"]), f1("the", ["an"])) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("turns", "is_well_formed"),
    [
        ([BOXED], True),
        (["<think>a</think> <search>q</search>", BOXED], True),
        ([], False),
        (["Obama"], False),
        ([r"<answer>\boxed{x}</answer>"], False),
        (["<think>a</think><answer>x</answer>"], False),
        ([BOXED, "<think>a</think>"], False),
        ([BOXED, BOXED], False),
        (["<think>a<think>b</think></think>" + BOXED], False),
        (["</think>a<think>" + BOXED], False),
        (["<search>q", BOXED], False),
        ([r"<think>\boxed{x}</think><answer>x</answer>"], False),
    ],
    ids=[
        "answer", "search", "nothing", "plain", "no-thought", "no-box", "answer-not-last", "two-answers", "nested",
        "reversed", "open-search", "box-outside",
    ],
)  # fmt: skip
def test_the_form_of_research_is_thoughts_searches_and_one_boxed_answer_at_the_end(
    turns: list[str], is_well_formed: bool
) -> None:
    assert has_research_form(turns) == is_well_formed


@pytest.mark.parametrize(
    ("ground_truth", "answers"),
    [
        ("Oked", ("Oked",)),
        (["Oked", "the Oked"], ("Oked", "the Oked")),
        ({"target": ["Oked"]}, ("Oked",)),
        ({"target": "Oked"}, ("Oked",)),
        ({"target": np.array(["Oked", "b"], dtype=object)}, ("Oked", "b")),
    ],
)
def test_golden_answers_are_read_in_every_form_that_datasets_have(ground_truth: Any, answers: tuple[str, ...]) -> None:
    assert golden_answers_of(ground_truth) == answers


@pytest.mark.parametrize("ground_truth", [None, "", " ", "\u200b", [], [""], [7], {}, {"target": []}, 7])
def test_a_row_without_golden_answers_is_refused(ground_truth: Any) -> None:
    with pytest.raises(DataError, match="ground_truth"):
        golden_answers_of(ground_truth)
