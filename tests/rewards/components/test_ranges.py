"""The ranges that components declare are those that they can reach, for the options that they are given."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.rewards.component import load_component

RANGES: dict[str, tuple[dict[str, Any], float, float]] = {
    "format_r1": ({}, 0.0, 1.0),
    "format": ({}, 0.0, 1.0),
    "tool_validity": ({}, 0.0, 1.0),
    "tool_shaping": ({"max_penalty": 0.3}, -0.3, 0.1),
    "tool_outcomes": ({"cap": 0.2}, -0.2, 0.2),
    "tool_diversity": ({"tools": ["search", "python"]}, 0.0, 1.0),
    "efficiency": ({}, -1.0, 0.0),
    "length_linear": ({"max_penalty": 0.3}, -0.3, 0.0),
    "length_sigmoid": ({}, -1.0, 0.0),
    "length_on_failure": ({"max_penalty": 0.3}, -0.3, 0.0),
    "overlong": ({"max_tokens": 10, "buffer_tokens": 1}, -1.0, 0.0),
    "subgoals": ({"cap": 0.2}, 0.0, 0.2),
    "llm_subgoals": ({"total": 0.3}, 0.0, 0.3),
    "progress": ({"estimator": "builtins:len", "cap": 0.4}, -0.4, 0.4),
    "repetition": ({}, -1.0, 0.0),
    "confidence": ({"form": "log_prob", "least_log_prob": -3.0}, -3.0, 0.0),
    "consistency": ({}, 0.0, 1.0),
    "pass_at_k": ({"k": 2}, 0.0, 1.0),
    "challenger_r_zero": ({"form": "code", "repetition_weight": 2.0}, -2.0, 0.5),
    "proposer_absolute_zero": ({}, -1.0, 1.0),
    "proposer_ssp": ({}, 0.0, 1.0),
}


@pytest.mark.parametrize("name", RANGES)
def test_the_declared_range_is_the_true_one(name: str) -> None:
    options, low, high = RANGES[name]
    made = load_component(name).make(options)
    assert (made.low, made.high) == (low, high)


def test_challengers_in_the_form_of_the_paper_and_confidence_as_a_probability() -> None:
    paper, probability = load_component("challenger_r_zero").make({}), load_component("confidence").make({})
    assert (paper.low, paper.high) == (probability.low, probability.high) == (0.0, 1.0)


def test_components_that_a_long_text_could_hold_up_have_a_deadline() -> None:
    bounded = [name for name in RANGES if not load_component(name).is_inline]
    assert bounded == ["progress", "consistency", "challenger_r_zero"]
