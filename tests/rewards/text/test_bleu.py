"""The BLEU of short answers."""

from __future__ import annotations

import math

import pytest

from verl_agentic.graders.text.bleu import length_aware_bleu


@pytest.mark.parametrize(
    ("answer", "reference", "bleu"),
    [  # vectors.json, V-PRS
        ("paris", "paris", 1.0),
        ("the city paris", "paris", 0.333333),
        ("new york city", "new york", 0.57735),
        ("york new", "new york", 0.0),
        ("los angeles", "new york", 0.0),
        ("", "paris", 0.0),
        ("paris", "", 0.0),
    ],
)
def test_short_answers_are_compared_by_n_grams_that_they_can_have(answer: str, reference: str, bleu: float) -> None:
    assert length_aware_bleu(answer.split(), reference.split()) == pytest.approx(bleu, abs=1e-6)


def test_an_answer_that_is_too_short_is_worth_less() -> None:
    # one of three words, all right: exp(1 - 3 / 1)
    assert length_aware_bleu(["new"], ["new", "york", "city"]) == pytest.approx(math.exp(-2))


def test_a_repeated_word_counts_as_often_as_the_reference_has_it() -> None:
    assert length_aware_bleu(["paris"] * 4, ["paris"]) == pytest.approx(0.25)


def test_long_texts_are_compared_by_4_grams() -> None:
    # 5 of 6 words, 4 of 5 pairs, 3 of 4 triples, 2 of 3 quadruples
    expected = (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert length_aware_bleu(list("abcdex"), list("abcdef")) == pytest.approx(expected)
