"""Rewards without a verifier: what the group agrees on, and how sure the policy is."""

from __future__ import annotations

import math
import time

import pytest
from samples import graded, group_values, sample, turn, value

from verl_agentic.errors import ConfigError
from verl_agentic.rewards.component import ABSTAIN
from verl_agentic.rewards.components.confidence import confidence
from verl_agentic.rewards.components.consistency import consistency
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
    with pytest.raises(ConfigError, match="least_log_prob must be less than 0"):
        confidence.make({"least_log_prob": 1.0})
