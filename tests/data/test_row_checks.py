"""Ground truths that reveal an answer, and texts that contain it."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.data.row_checks import answers_of, appears_in, is_json


@pytest.mark.parametrize(
    ("answer", "text", "does"),
    [
        ("Nairobi", "the capital is NAIROBI.", True),
        ("246078", "246078", True),
        ("246078", "1246078", False),
        ("246078", "2460780", False),
        ("246078", "x_246078", False),
        ("a+b", "is it (a+b)?", True),
        ("art", "start the party", False),
        ("New York", "in new york, say", True),
        ("3.14", "3.14", True),
        ("3x14", "3.14", False),
    ],
)
def test_an_answer_stands_in_a_text_as_words_of_its_own(answer: str, text: str, does: bool) -> None:
    assert appears_in(answer, text) is does


@pytest.mark.parametrize(
    ("truth", "answers", "reason"),
    [
        ("Nairobi", ["Nairobi"], ""),
        (" x y ", ["x y"], ""),
        (246078, ["246078"], ""),
        (0.25, ["0.25"], ""),
        (["Nairobi", "NBO", "N"], ["Nairobi", "NBO"], ""),
        ("ab", [], "the ground truth is shorter than 3 characters"),
        (42, [], "the ground truth is shorter than 3 characters"),
        ([], [], "the ground truth is shorter than 3 characters"),
        (None, [], "the ground truth is neither text nor number"),
        (True, [], "the ground truth is neither text nor number"),
        ({"a": 1}, [], "the ground truth is neither text nor number"),
        (["Nairobi", {"a": 1}], [], "the ground truth is neither text nor number"),
    ],
)
def test_texts_and_numbers_that_are_long_enough_give_something_away(
    truth: Any, answers: list[str], reason: str
) -> None:
    assert answers_of(truth) == (answers, reason)


@pytest.mark.parametrize(
    ("value", "is_plain"), [({"a": [1, "b", None]}, True), ((1, 2), False), ({1: 2}, False), (float("nan"), False)]
)
def test_plain_json_comes_back_as_it_was(value: Any, is_plain: bool) -> None:
    assert is_json(value) is is_plain
