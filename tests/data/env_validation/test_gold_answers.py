"""Answers made of a row's right ones: what is called wrong surely is wrong, what is called right surely is right."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.graders.answers.gold_answers import gold_of, rewritings, wrong_answers


@pytest.mark.parametrize(
    ("ground_truth", "gold"),
    [
        ("Paris", ("Paris",)),
        (408, ("408",)),
        (["Paris", "paris, France"], ("Paris", "paris, France")),
        ({"target": ["Paris"]}, ("Paris",)),
        (None, ()),
        (True, ()),
        ({"tests": ["assert 1"]}, ()),
        ('[{"name": "f", "arguments": {}}]', ()),
        ("<tool_call>{}</tool_call>", ()),
        ([], ()),
    ],
)
def test_right_answers_are_texts_and_numbers(ground_truth: Any, gold: tuple[str, ...]) -> None:
    assert gold_of(ground_truth) == gold


def made(*gold: str, others: tuple[str, ...] = ()) -> dict[str, str]:
    return {one.kind: one.text for one in wrong_answers(gold, others)}


def test_wrong_answers_are_wrong_in_every_way() -> None:
    assert made("1924", others=("1924", "1,924", "17")) == {
        "empty": "", "other": "17", "digits": "2924", "negated": "-1924", "truncated": "192",
    }  # fmt: skip
    assert made("Anna Karenina", others=("Anna", "the Paris of the North", "Oslo")) == {
        "empty": "", "other": "the Paris of the North", "negated": "not Anna Karenina", "truncated": "Anna Ka",
    }  # fmt: skip
    assert made("yes")["negated"] == "no" and made("No")["negated"] == "yes"
    assert {one.kind for one in wrong_answers(["7"], ["8"]) if one.is_near} == {"digits", "negated"}


def test_what_may_be_right_after_all_is_left_out() -> None:
    assert made("0", others=("0.0",)) == {"empty": "", "digits": "1"}, "-0 is 0, and so is 0.0"
    assert made("1.50") == {"empty": "", "digits": "2.50", "negated": "-1.50"}, "1.5 is 1.50"
    assert "truncated" not in made("Parisien", "Pari"), "another right answer"
    assert made(r"\frac{1}{2}", others=("0.5", "7", r"\frac{3}{4}")) == {"empty": "", "digits": r"\frac{2}{2}"}
    assert "other" not in made("42", others=("the Smiths",))


def test_rewritings_are_as_right() -> None:
    assert rewritings("7", "math") == ["7.0", r"\frac{14}{2}"] and rewritings("-7", "math")[1] == r"\frac{-14}{2}"
    assert rewritings("2.5", "math") == ["2.50"] and rewritings("x^2", "math") == [" x^2 "]
    assert rewritings("U.S. Open", "qa") == ["U.S. OPEN", "  The U.S. Open. "]
