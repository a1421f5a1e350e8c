"""ToolRL's rewards: toolrl and toolrl_efficiency."""

from __future__ import annotations

import importlib.util
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.turns.toolrl_scores import ExpectedTurn, NamedCall, call_score, has_toolrl_form
from verl_agentic.rewards.component import ABSTAIN, Graded, load_component
from verl_agentic.rewards.sample import Call, Sample

WEATHER: NamedCall = ("get_weather", {"city": "Paris", "unit": "C"})
SEARCH: NamedCall = ("search", {"q": "x"})
CALLED = '<think>a</think>\n<tool_call>\n{"name":"f","parameters":{}}\n</tool_call>'


def graded(name: str, subject: Sample, **options: Any) -> Graded:
    component = load_component(name).make(options)
    return component.checked(component(subject))


def made(*calls: NamedCall) -> list[Call]:
    return [Call(name=name, arguments=arguments, result="ok") for name, arguments in calls]


def truth(*calls: NamedCall) -> list[dict[str, Any]]:
    return [{"name": name, "parameters": dict(arguments)} for name, arguments in calls]


@pytest.mark.parametrize(
    ("expected", "called", "score"),
    [  # vectors.json, V-TOOLRL
        ([WEATHER], [WEATHER], 3.0),
        ([WEATHER], [("get_weather", {"city": "Paris", "unit": "F"})], 1.5),
        ([WEATHER], [("get_weather", {"city": "Paris"})], 0.75),
        ([WEATHER], [("get_weather", {"city": "Paris", "unit": "C", "days": 3})], 2.5),
        ([WEATHER], [("search", {"q": "Paris"})], -3.0),
        ([WEATHER], [WEATHER, SEARCH], 2.25),
        ([WEATHER, SEARCH], [SEARCH, WEATHER], 3.0),
        ([WEATHER], [], -3.0),
        ([("now", {})], [("now", {})], 3.0),
        # two of one tool: each takes the one that fits it best
        ([("f", {"a": 1}), ("f", {"a": 2})], [("f", {"a": 2}), ("f", {"a": 1})], 3.0),
    ],
    ids=[
        "exact",
        "value",
        "missing",
        "extra-parameter",
        "wrong-tool",
        "extra-call",
        "swapped",
        "none",
        "bare",
        "twice",
    ],
)
def test_calls_score_by_names_parameters_and_values(
    expected: list[NamedCall], called: list[NamedCall], score: float
) -> None:
    assert call_score(expected, called) == pytest.approx(score)
    found = graded("toolrl", sample([turn("", *made(*called))], ground_truth=truth(*expected)))
    assert found.value == pytest.approx(score)


def verls_copy() -> Any:
    """Returns verl's module without importing the rest of verl, which takes long."""
    package = importlib.util.find_spec("verl")
    assert package is not None and package.origin is not None
    spec = importlib.util.spec_from_file_location("rlla", Path(package.origin).parent / "utils/reward_score/rlla.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_score_is_that_of_verls_own_copy() -> None:
    rlla = verls_copy()
    draw = random.Random(0)

    def calls() -> list[NamedCall]:
        names = [draw.choice("fgh") for _ in range(draw.randint(1, 4))]
        return [(n, {k: draw.randint(0, 2) for k in "abc" if draw.random() < 0.6}) for n in names]

    for _ in range(500):
        expected, called = calls(), calls()
        theirs = rlla.compute_tool_call_reward(truth(*expected), truth(*called), 3.0, -3.0, False)
        assert call_score(expected, called) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [  # vectors.json, V-TOOLRL-F
        (CALLED, True),
        ("<think>a</think><tool_call>\n{}\n</tool_call>", False),
        ("<think>a</think>\n<tool_call>\n{}\n</tool_call>\n<tool_call>\n{}\n</tool_call>", False),
        ("<think>a</think>\n<tool_call>\n{}\n</tool_call> done", False),
        ("<tool_call>\n{}\n</tool_call>", False),
        ("<think>a</think><think>b</think>\n<tool_call>\n{}\n</tool_call>", False),
        ("<think>a</think>\n<tool_call>\n</tool_call>", False),
        ("<tool_call>\n<think>a</think>\n</tool_call>", False),
    ],
    ids=["ok", "no-line", "two-blocks", "behind", "no-thought", "two-thoughts", "empty", "inside-out"],
)
def test_a_turn_with_calls_is_a_thought_and_one_block(text: str, is_right: bool) -> None:
    assert has_toolrl_form(text, with_calls=True, with_response=False) == is_right
    subject = sample([turn(f"{text}<|im_end|>\n", *made(("f", {})))], ground_truth=truth(("f", {})))
    assert graded("toolrl", subject) == Graded(value=3.0 + is_right, info={"form": float(is_right), "calls": 3.0})


@pytest.mark.parametrize(
    ("text", "calls", "response"),
    [
        ("<think>a</think>\n<response>b</response>", False, True),
        ("<think>a</think>\n<tool_call>\n{}\n</tool_call>\n<response>b</response>", True, True),
        ("<think>a</think>", False, False),
    ],
)
def test_each_form_is_only_itself(text: str, calls: bool, response: bool) -> None:
    forms = [(c, r) for c in (False, True) for r in (False, True)]
    right = [form for form in forms if has_toolrl_form(text, with_calls=form[0], with_response=form[1])]
    assert right == [(calls, response)]


@pytest.mark.parametrize(
    ("ground_truth", "calls", "has_response"),
    [
        (truth(WEATHER), (WEATHER,), False),
        (json.dumps(truth(WEATHER)), (WEATHER,), False),
        ([{"name": "search", "arguments": {"q": "x"}, "parameters": None}], (SEARCH,), False),
        ([], (), True),
        ("<think>a</think>\n<response>b</response>", (), True),
        (f"<think>a</think>\n<tool_call>\n{json.dumps(truth(WEATHER)[0])}\n</tool_call>", (WEATHER,), False),
        ('<think>a</think>\n<tool_call>\n{"name":"f","parameters":{}}\n</tool_call>\n<response>b</response>',
         (("f", {}),), True),
    ],
    ids=["list", "json", "arguments", "none", "response", "turn", "both"],
)  # fmt: skip
def test_expected_calls_are_read_in_every_form_that_data_have(
    ground_truth: Any, calls: tuple[NamedCall, ...], has_response: bool
) -> None:
    assert ExpectedTurn.of(ground_truth) == ExpectedTurn(calls=calls, has_response=has_response)


@pytest.mark.parametrize("name", ["toolrl", "toolrl_efficiency"])
@pytest.mark.parametrize("ground_truth", ["Paris", "{", 7, [{"name": "f"}], [7], "<tool_call>\nno\n</tool_call>"])
def test_a_ground_truth_without_calls_is_refused(name: str, ground_truth: Any) -> None:
    with pytest.raises(DataError, match="ground_truth"):
        load_component(name).make({})(sample("x", ground_truth=ground_truth))


@pytest.mark.parametrize("name", ["toolrl", "toolrl_efficiency"])
def test_a_row_without_ground_truth_has_no_score(name: str) -> None:
    assert load_component(name).make({})(sample(CALLED)) == ABSTAIN


def test_a_call_that_cannot_be_read_costs_all_and_one_too_many_costs_some() -> None:
    right = made(WEATHER)
    broken = call("", error_kind="malformed_json")
    expected = truth(WEATHER)
    assert graded("toolrl", sample([turn("", *right, broken)], ground_truth=expected)).value == -3.0
    spam = [graded("toolrl", sample([turn("", *right * n)], ground_truth=expected)).value for n in (1, 2, 50)]
    assert spam[0] == 3.0 > spam[1] > spam[2]  # type: ignore[operator]


def test_calls_that_only_a_tool_told_of_are_none() -> None:
    quoted = Call(name="other", arguments={}, result=CALLED)
    assert graded("toolrl", sample([turn("", quoted), "x"], ground_truth=truth(("f", {})))).value == -3.0


def test_where_no_call_is_expected_only_the_form_counts() -> None:
    said = "<think>a</think>\n<response>b</response>"
    assert graded("toolrl", sample(said, ground_truth=[])).value == 1.0
    assert graded("toolrl", sample("b", ground_truth=[])).value == 0.0
    assert graded("toolrl", sample("a</think>\n<response>b</response>", ground_truth=[]), starts_in_reasoning=True) == (
        Graded(value=1.0, info={"form": 1.0, "calls": 0.0})
    )


def test_each_of_several_turns_has_the_form_of_what_it_does() -> None:
    said = "<think>b</think>\n<response>c</response>"
    turns = [turn(CALLED, *made(("f", {}))), said]
    assert graded("toolrl", sample(turns, ground_truth=truth(("f", {})))).value == 4.0
    assert graded("toolrl", sample([*turns, "more"], ground_truth=truth(("f", {})))).value == 3.0


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["toolrl", "toolrl_efficiency"])
def test_10000_calls_and_10_mb_are_scored_in_seconds(name: str) -> None:
    calls = made(*[("f", {"a": n, "text": "x" * 1000}) for n in range(10_000)])
    expected = truth(*[("f", {"a": n}) for n in range(10)])
    started = time.process_time()
    graded(name, sample([turn("<think>" * 1_400_000, *calls)], ground_truth=expected))
    assert time.process_time() - started < 20.0


def test_the_seeds_form_pays_for_the_outcome_first_and_takes_for_calls_in_vain() -> None:
    # D20: right, well formed, 2 of 4 calls redundant: 1 + .2 - .1 * .5
    one, two = ("f", {"a": 1}), ("f", {"a": 2})
    turns = [turn(CALLED, *made(one, two, one, two))]
    assert graded("toolrl_efficiency", sample(turns, ground_truth=truth(one, two))).value == pytest.approx(1.15)
    found = graded("toolrl_efficiency", sample(turns, final_answer="Paris", ground_truth="Paris"), by="answer")
    assert found.value == pytest.approx(1.15)
    assert found.info == {"correct": 1.0, "form": 1.0, "redundancy": 0.5}


@pytest.mark.parametrize(("calls", "correct"), [([WEATHER], 1.0), ([SEARCH], 0.0), ([WEATHER, SEARCH], 0.0), ([], 0.0)])
def test_only_all_expected_calls_and_no_others_are_right(calls: list[NamedCall], correct: float) -> None:
    found = graded("toolrl_efficiency", sample([turn("", *made(*calls))], ground_truth=truth(WEATHER)))
    assert found.value == correct
    for said in ("It is sunny.", ""):
        nothing = graded("toolrl_efficiency", sample([turn(said, *made(*calls))], ground_truth=[]))
        assert nothing.value == float(not calls and bool(said)), "silence is not right because no call is"


@pytest.mark.parametrize("options", [{"alpha": 0.5}, {"alpha": 0.1, "gamma": 0.2}, {"gamma": -0.1}])
def test_weights_that_would_turn_the_seeds_order_around_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="gamma <= alpha"):
        load_component("toolrl_efficiency").make(options)


def test_the_range_follows_the_weights() -> None:
    made_ = load_component("toolrl_efficiency").make({"alpha": 0.3, "gamma": 0.2})
    assert (made_.low, made_.high) == (-0.2, 1.3)
