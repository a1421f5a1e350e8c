"""The normal form of short answers: what is the same, what stays apart, and that nothing becomes empty."""

from __future__ import annotations

import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import sample

from verl_agentic.base.text.normal_form import normalise
from verl_agentic.rewards.answers.short_answers import exact_match, f1
from verl_agentic.rewards.component import load_component

TAGGED = ("search_r1", "ssrl")
VISIBLE = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
NUMBERS = st.decimals(min_value=-(10**7), max_value=10**7, places=2) | st.integers(-(10**7), 10**7).map(Decimal)


def em(name: str, answer: str, golden: str) -> float:
    """Returns what a component pays beside its reward for form."""
    text = f"<think>t</think><answer>{answer}</answer>" if name in TAGGED else answer
    component = load_component(name).make({})
    value = component.checked(component(sample(text, ground_truth=golden))).value or 0.0
    return float(value > 0.5)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  The  Quick,\tbrown\nfox! ", "quick brown fox"),
        ("Theatre and another", "theatre and another"),  # articles are words, not beginnings of words
        ("An A-Team", "ateam"),
        ("ÉCLAIR", "éclair"),
        ("U.S.", "us"),
        ("A", "a"),
        ("The", "the"),
        ("...", "..."),
        ("-5", "-5"),
        ("\u22125 °C", "-5 °c"),
        ("-$5.50", "-5.50"),
        ("3.14.", "3.14"),
        (".5", "0.5"),
        ("1,234,567.8", "1234567.8"),
        ("3,14", "3 14"),
        ("1/2", "1 2"),
        ("5:30", "5 30"),
        ("1914\u20131918", "1914 1918"),
        ("COVID-19", "covid19"),
        ("May 5,2020", "may 5 2020"),
        ("10²", "10²"),
        ("１９８４", "1984"),
        ("so\u00adft\u200b", "soft"),
        ("\u200b", ""),
    ],
)
def test_the_normal_form_of_a_text(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-5", "5"),
        ("3.14", "314"),
        ("0.5", "5"),
        ("1/2", "12"),
        ("-0.5", "0.5"),
        ("$-5", "$5"),
        ("1.5 million", "15 million"),
        ("A", "The"),
        ("A", "B"),
        ("10²", "102"),
        ("...", "!"),
    ],
)
@pytest.mark.parametrize("name", ["exact_match", "search_r1", "ssrl"])
def test_other_answers_stay_other_answers(name: str, one: str, other: str) -> None:
    assert em(name, one, other) == em(name, other, one) == 0.0
    assert em(name, one, one) == em(name, other, other) == 1.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Schindler\u2019s List", "Schindler's List"),
        ("\u201cHamlet\u201d", '"Hamlet"'),
        ("Hawai\u02bbi", "Hawai'i"),
        ("Jean\u2013Luc", "Jean-Luc"),
        ("1914\u20131918", "1914-1918"),
        ("\u22125", "-5"),
        ("\u20135", "-5"),
        ("Beyonce\u0301", "Beyonc\u00e9"),
        ("New\u00a0York", "New York"),
        ("1,000", "1000"),
        ("«Paris»", "Paris"),
    ],
)
def test_forms_of_one_answer_are_one_answer(one: str, other: str) -> None:
    assert exact_match(one, [other]) == exact_match(other, [one]) == f1(one, [other]) == 1.0


@pytest.mark.parametrize("empty", ["", " ", "\u200b", "\n"])
@pytest.mark.parametrize("golden", ["A", "The", "an", "...", "?", "-"])
@pytest.mark.parametrize("name", ["exact_match", "f1", "search_r1", "ssrl"])
def test_an_empty_answer_is_never_right_and_the_golden_one_always(name: str, golden: str, empty: str) -> None:
    assert em(name, empty, golden) == 0.0
    assert em(name, golden, golden) == 1.0


@given(VISIBLE)
def test_every_visible_text_matches_itself_and_not_nothing(text: str) -> None:
    assert normalise(text)
    assert exact_match(text, [text]) == f1(text, [text]) == 1.0
    assert exact_match("", [text, "\u200b"]) == f1("", [text, "\u200b"]) == 0.0


@given(st.text(max_size=20))
def test_composed_and_decomposed_letters_are_the_same(text: str) -> None:
    assert normalise(unicodedata.normalize("NFC", text)) == normalise(unicodedata.normalize("NFD", text))


@given(st.text(alphabet="ab 19-'.,", max_size=12), st.sampled_from("\u2010\u2011\u2012\u2013\u2014\u2212"))
def test_dashes_and_apostrophes_are_the_same_whatever_their_form(text: str, dash: str) -> None:
    assert normalise(text.replace("-", dash).replace("'", "\u2019")) == normalise(text)


@given(NUMBERS, NUMBERS)
def test_numbers_match_only_where_they_are_equal(one: Decimal, other: Decimal) -> None:
    if one != other:
        assert exact_match(str(one), [str(other)]) == 0.0
        assert exact_match(f"{one:,}", [str(other)]) == 0.0
    assert exact_match(f"{one:,}", [str(one)]) == 1.0
    assert exact_match(f"It is {one:,}.", [f"it is {one}"]) == 1.0
