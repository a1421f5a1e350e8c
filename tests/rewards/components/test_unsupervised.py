"""Rewards without a verifier: what the group agrees on, and how sure the policy is."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import graded, group_values, sample, turn, value

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.components.confidence import confidence
from verl_agentic.graders.components.consistency import consistency
from verl_agentic.rewards.component import ABSTAIN
from verl_agentic.rewards.sample import Sample


def answers(*texts: str) -> list[Sample]:
    return [sample("x", final_answer=text) for text in texts]


def test_the_majority_stands_in_for_the_truth_as_in_the_vector() -> None:
    # V-CONSIST
    group = answers("5", "5", "7", "", "5")
    assert group_values(consistency, group) == [1, 1, 0, 0, 1]
    assert group_values(consistency, group, form="share") == pytest.approx([0.6, 0.6, 0.2, 0.0, 0.6])


def test_of_two_answers_as_common_the_first_wins() -> None:
    assert group_values(consistency, answers("7", "5", "5", "7")) == [1, 0, 0, 1]


def test_no_answers_make_no_majority() -> None:
    assert group_values(consistency, answers("", " ", "5")) == [0, 0, 1]
    assert group_values(consistency, answers("", "")) == [0, 0]
    assert group_values(consistency, [], form="share") == []


def test_boxes_case_and_spaces_do_not_part_answers_but_signs_do() -> None:
    group = answers(r"It is \boxed{ New  York }.", "new york", "-5", "5")
    assert group_values(consistency, group) == [1, 1, 0, 0]
    assert group_values(consistency, answers("-5", "5", "-5")) == [1, 0, 1]


HALF = ["1/2", r"\boxed{\frac{1}{2}}", "0.5", r"$\dfrac12$", "0.50", "½", r"The answer is \boxed{\tfrac{2}{4}}."]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "spellings", [HALF, [r"\boxed{\sqrt{2}/2}", r"\boxed{\frac{1}{\sqrt{2}}}"], ["x+1", "1+x", "1 + x"]]
)
def test_spellings_of_one_answer_are_one_answer(spellings: list[str]) -> None:
    group = answers("7", "7", *spellings, *spellings, r"\boxed{8}")
    assert group_values(consistency, group) == [0, 0] + [1] * (2 * len(spellings)) + [0]
    share = 2 * len(spellings) / len(group)
    assert group_values(consistency, group, form="share")[2] == pytest.approx(share)


@given(st.fractions(-1000, 1000, max_denominator=50), st.fractions(-1000, 1000, max_denominator=50))
def test_two_fractions_are_one_answer_only_where_they_are_equal(one: Fraction, other: Fraction) -> None:
    group = answers(f"{one}", rf"\boxed{{\frac{{{3 * other.numerator}}}{{{3 * other.denominator}}}}}")
    assert group_values(consistency, group) == [1, float(one == other)]


@pytest.mark.parametrize(
    "refusal",
    [
        "I do not know", "I don't know.", "I don\u2019t know the answer", r"\boxed{\text{I do not know}}",
        "Sorry, I don't know.",
        "unknown", "I'm not sure", "No idea!", "I cannot answer this question", "idk", "?", "...", "I have no idea.",
    ],
)  # fmt: skip
def test_refusals_are_no_answer_however_many_there_are(refusal: str) -> None:
    assert group_values(consistency, answers(refusal, refusal, refusal, "5")) == [0, 0, 0, 1]
    assert group_values(consistency, answers(refusal, refusal), form="share") == [0, 0]


@pytest.mark.parametrize("answer", ["no", "No solution", "none", "I do not know why, but it is 5", "∅", "Know-how"])
def test_answers_that_only_sound_like_refusals_count(answer: str) -> None:
    assert group_values(consistency, answers(answer, answer, "5")) == [1, 1, 0]


def test_reasoning_is_no_part_of_an_answer() -> None:
    group = answers("<think>7 or 5?</think> 5", "<think>hm</think>5", "7", "<think>7")
    assert group_values(consistency, group) == [1, 1, 0, 0]


def test_answers_of_ten_megabytes_are_compared_at_once() -> None:
    started = time.process_time()
    assert group_values(consistency, answers(*[r"\boxed{" * 1_500_000] * 4)) == [1] * 4
    assert time.process_time() - started < 5.0


def test_confidence_is_that_of_the_vector() -> None:
    # V-CONF: one token each of log-prob -.1, -.7, -.2.
    episode = sample([turn("x", mean_log_prob=p) for p in (-0.1, -0.7, -0.2)])
    assert value(confidence, episode, form="log_prob") == pytest.approx(-0.333333, abs=1e-6)
    assert value(confidence, episode) == pytest.approx(0.716531, abs=1e-6)


def test_confidence_weighs_turns_by_their_tokens() -> None:
    episode = sample([turn("x", mean_log_prob=-1.0, num_tokens=1), turn("y", mean_log_prob=-2.0, num_tokens=3)])
    assert value(confidence, episode, form="log_prob") == pytest.approx(-1.75)


@pytest.mark.parametrize("chances", [(1.0,), (0.5, 0.5), (0.5, 0.25, 0.25), (0.1, 0.2, 0.3, 0.4)])
def test_the_mean_log_prob_is_on_average_minus_the_entropy(chances: tuple[float, ...]) -> None:
    paid = [value(confidence, sample([turn("x", mean_log_prob=math.log(p))]), form="log_prob") for p in chances]
    entropy = -sum(p * math.log(p) for p in chances)
    assert sum(p * (one or 0.0) for p, one in zip(chances, paid, strict=True)) == pytest.approx(-entropy)


def test_confidence_has_a_least_value() -> None:
    lost = sample([turn("x", mean_log_prob=-math.inf)])
    assert value(confidence, lost, form="log_prob") == -5.0
    assert value(confidence, lost) == pytest.approx(math.exp(-5.0))
    assert value(confidence, lost, form="log_prob", least_log_prob=-2.0) == -2.0


def test_confidence_has_no_opinion_without_log_probs() -> None:
    assert graded(confidence, sample([turn("x", mean_log_prob=-1.0), turn("y")])) == ABSTAIN
    assert graded(confidence, sample([])) == ABSTAIN
    silent = turn("", num_tokens=0)
    assert value(confidence, sample([turn("x", mean_log_prob=-1.0), silent], final_answer="x"), form="log_prob") == -1.0


def test_forms_that_do_not_exist_are_refused() -> None:
    for component in (confidence, consistency):
        with pytest.raises(ConfigError, match=r"form .*must be"):
            component.make({"form": "entropy"})
    with pytest.raises(ConfigError, match="least_log_prob"):
        confidence.make({"least_log_prob": 1.0})
