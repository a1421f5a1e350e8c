"""Outcome components as plain reward functions, without verl."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders import functions
from verl_agentic.rewards.component import component_names, load_component


def test_every_outcome_component_of_one_sample_is_a_function_with_verls_signature() -> None:
    outcomes = {
        name
        for name in component_names()
        if name != "env"
        and (found := load_component(name)).scope == "sample"
        and (found.kind == "outcome" or found.outcome_options)
    }
    assert set(functions.function_names()) == outcomes and {"math", "search_r1", "code_tests", "judge"} <= outcomes
    for name in outcomes:
        function = getattr(functions, name)
        parameters = list(inspect.signature(function).parameters)
        assert parameters == ["data_source", "solution_str", "ground_truth", "extra_info", "options"]
        assert function.__name__ == name and function.__doc__
        assert inspect.iscoroutinefunction(function) == load_component(name).is_async


def test_they_score_texts() -> None:
    assert functions.exact_match("nq", "The Paris.", ["Paris"]) == {"score": 1.0, "acc": 1.0}
    assert functions.search_r1("nq", "<answer>Rome</answer>", {"target": ["Paris"]})["score"] == 0.0
    assert functions.f1("nq", "Barack Obama", "Obama")["score"] == pytest.approx(2 / 3)
    # arpo is -1 for a broken form, on a scale from -1 to 1.1
    assert functions.arpo("nq", "Paris", "Paris") == {"score": -1.0, "acc": 0.0}
    assert asyncio.run(functions.math("m", r"so \boxed{408.0}", "408"))["score"] == 1.0


def test_options_are_the_components_and_what_verl_adds_is_ignored() -> None:
    options = {"structure": 0.5, "reward_router_address": "http://localhost", "reward_model_tokenizer": None}
    text = "so <answer>Paris</answer>"
    assert functions.search_r1_format("nq", text, "Paris", **options)["score"] == 0.5
    with pytest.raises(ConfigError, match="structures"):
        functions.search_r1_format("nq", text, "Paris", structures=0.5)


def test_an_abstention_is_told_apart_from_0() -> None:
    told = functions.exact_match("nq", "Paris", None)
    assert told["score"] == 0.0 and "abstained" in told["void_reason"]


def test_several_turns_without_a_record_are_refused() -> None:
    assert functions.exact_match("nq", "Paris", "Paris", {"num_turns": 2})["score"] == 1.0
    with pytest.raises(DataError, match="num_turns=4"):
        functions.exact_match("nq", "Paris", "Paris", {"num_turns": 4})


@pytest.mark.parametrize("name", ["consistency", "env", "overlong", "nothing"])
def test_other_names_are_no_functions(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(functions, name)
