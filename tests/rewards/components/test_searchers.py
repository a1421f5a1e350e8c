"""Rewards of systems that search or route: ssrl, router_r1, reseek."""

from __future__ import annotations

import math
from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.components.router_r1 import has_router_form, router_reward
from verl_agentic.graders.components.ssrl import ssrl_form
from verl_agentic.rewards.component import Graded, load_component
from verl_agentic.rewards.sample import Call, Sample


def graded(name: str, subject: Sample, **options: Any) -> Graded:
    component = load_component(name).make(options)
    return component.checked(component(subject))


def self_searched(*, thoughts: int, searches: int, answer: str = "Paris") -> str:
    steps = ["<think>t</think>"] * thoughts
    searched = ["<search>q</search><information>i</information>"] * searches
    mixed = [part for pair in zip(steps, [*searched, *[""] * (thoughts - searches)], strict=True) for part in pair]
    return "\n".join([*mixed, f"<answer>{answer}</answer>"])


@pytest.mark.parametrize(
    ("em", "thoughts", "searches", "value"),
    [(1, 3, 2, 1.0), (1, 1, 0, 0.95), (0, 4, 1, 0.05), (1, 9, 8, 0.9)],  # vectors.json, V-SSRL
)
def test_ssrl_is_nine_tenths_match_and_a_tenth_form(em: int, thoughts: int, searches: int, value: float) -> None:
    text = self_searched(thoughts=thoughts, searches=searches, answer="Paris" if em else "Rome")
    assert graded("ssrl", sample(text, ground_truth="Paris")).value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hi <think>t</think><think>u</think><answer>a</answer>",
        "<think>t</think><think>u</think><answer>a</answer> bye",
        "<think>t</think><think> </think><answer>a</answer>",
        "<think>t</think><b>u</b><think>u</think><answer>a</answer>",
        "<think>t</think><search>q</search><think>u</think><answer>a</answer>",
        "<think>t</think><search>q\nr</search><information>i</information><think>u</think><answer>a</answer>",
        "<think>t</think><search>Your query</search><information>i</information><think>u</think><answer>a</answer>",
        "<think>t</think><information>i</information><think>u</think><answer>a</answer>",
        "<think>t</think><information>i</information><search>q</search><think>u</think><answer>a</answer>",
        "<search>q</search><information>i</information><think>u</think><answer>a</answer>",
    ],
    ids=["nothing", "before", "behind", "empty-thought", "other-tag", "unanswered", "two-lines", "placeholder",
         "unasked", "answered-first", "no-thought-first"],
)  # fmt: skip
def test_a_broken_rule_leaves_nothing_of_ssrls_form(text: str) -> None:
    assert ssrl_form([text], is_answered=[False]) == 0.0


def test_a_real_engine_answers_in_place_of_the_policy() -> None:
    asked = turn("<think>t</think><search>q</search>", Call(name="search", arguments={}, result="<b>r</b>"))
    subject = sample([asked, "<think>u</think><answer>Paris</answer><|im_end|>"], ground_truth="Paris")
    assert graded("ssrl", subject) == Graded(value=1.0, info={"form": 1.0})
    unanswered = sample(["<think>t</think><search>q</search>", subject.turns[1]], ground_truth="Paris")
    assert graded("ssrl", unanswered).value == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("outcome", "form", "cheapness", "value"),
    [(1, 0, 0.9, 0.94), (1, 0, 0.1, 0.46), (0, 0, 0.9, 0.0), (1, -1, 0.9, -1.0)],  # vectors.json, V-ROUTER
)
def test_router_r1_weighs_the_cost_of_right_answers_only(
    outcome: float, form: int, cheapness: float, value: float
) -> None:
    found = router_reward(outcome, is_well_formed=form == 0, cheapness=cheapness, alpha=0.6)
    assert found == pytest.approx(value)
    answer = "Paris" if outcome else "Rome"
    text = f"<think>t</think><answer>{answer}</answer>{'' if form == 0 else 'x'}"
    assert graded("router_r1", sample(text, ground_truth="Paris"), cheapness=cheapness).value == pytest.approx(value)


ASKED = turn("<think>t</think><search>Qwen: who?</search>", Call(name="route", arguments={}, result="r"))
ROUTED = [ASKED, "<think>u</think><answer>Paris</answer>"]


def test_the_cheapness_comes_from_the_environment_else_the_row_else_the_rubric() -> None:
    reported = sample(ROUTED, ground_truth="Paris", outcome=0.0, info={"cheapness": 0.9}, extra={"cheapness": 0.1})
    row = sample(ROUTED, ground_truth="Paris", extra={"price": 0.1})
    assert graded("router_r1", reported).value == pytest.approx(0.94)
    assert graded("router_r1", row, cheapness="price").value == pytest.approx(0.46)
    assert graded("router_r1", row, cheapness=0.9).value == pytest.approx(0.94)


def test_a_cost_is_normalised_by_a_fixed_range() -> None:
    # (sqrt(9) - sqrt(4)) / (sqrt(16) - sqrt(4)) = 1/2; right: 0.4 + 0.6 * cheapness
    for cost, cheapness in ((9, 0.5), (4, 1.0), (1, 1.0), (16, 0.0), (100, 0.0)):
        row = sample(ROUTED, ground_truth="Paris", extra={"cost": cost})
        found = graded("router_r1", row, cheapness="cost", cost_range=[4, 16])
        assert found.value == pytest.approx(0.4 + 0.6 * cheapness)
    with pytest.raises(DataError, match="-1"):
        graded("router_r1", row, cheapness=-1, cost_range=[4, 16])
    for cost_range in ([4], [4, 4], [-1, 1], [1, math.inf]):
        with pytest.raises(ConfigError, match="cost_range"):
            load_component("router_r1").make({"cost_range": cost_range})


@pytest.mark.parametrize("extra", [{}, {"cheapness": 1.5}, {"cheapness": "low"}, {"cheapness": True}])
def test_a_cost_that_nobody_normalised_is_an_error(extra: dict[str, Any]) -> None:
    subject = sample(ROUTED, ground_truth="Paris", extra=extra)
    with pytest.raises(DataError, match="cheapness"):
        load_component("router_r1").make({})(subject)
    assert graded("router_r1", subject, alpha=0.0).value == 1.0


def test_router_r1_takes_f1_and_refuses_weights_that_are_none() -> None:
    subject = sample("<think>t</think><answer>Barack Obama</answer>", ground_truth="Obama")
    assert graded("router_r1", subject, metric="f1", alpha=0.0).value == pytest.approx(2 / 3)
    assert graded("router_r1", subject, alpha=0.0).value == 0.0
    with pytest.raises(ConfigError, match="alpha from 0 to 1"):
        load_component("router_r1").make({"alpha": 1.5})


@pytest.mark.parametrize(
    ("query", "is_right"),
    [
        ("qwen: who?", True),
        ("who?", False),
        ("qwen: who: me?", False),
        ("qwen:", False),
        (": who?", False),
        ("llama: who?", False),
        ("qwen: who is qwen?", False),
        ("LLM-Name: Your-Query", False),
    ],
)
def test_a_route_names_a_known_model_and_asks_something(query: str, is_right: bool) -> None:
    turns = [f"<think>t</think><search>{query}</search>", "<think>u</think><answer>a</answer>"]
    assert has_router_form(turns, is_answered=[True, False], models=["Qwen"]) == is_right
    assert not has_router_form(turns, is_answered=[False, False], models=["Qwen"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer>a</answer>",
        "<think>...</think><answer>a</answer>",
        "<think></think><answer>a</answer>",
        "<think>t<answer>a</answer></think><answer>a</answer>",
        "<think>t</think><answer>a</answer><answer>b</answer>",
        "x<think>t</think><answer>a</answer>",
    ],
)
def test_what_is_not_router_r1s_form_costs_1(text: str) -> None:
    assert graded("router_r1", sample(text, ground_truth="a"), cheapness=1.0).value == -1.0


def search(result: str) -> Any:
    return turn("<search>q</search>", Call(name="search", arguments={}, result=result))


@pytest.mark.parametrize(
    ("judgement", "result", "value"),
    [
        ("good", "the capital is Paris.", 1.0),
        ("bad", "the capital is Paris.", -1.0),
        ("bad", "the capital is Rome.", 1.0),
        ("good", "the capital is Rome.", -1.0),
        (" Yes ", "the capital is Paris.", 1.0),
        ("no", "the capital is Paris.", -1.0),
        ("maybe", "the capital is Paris.", 0.0),
        ("good", "Parisian", -1.0),
    ],
)
def test_reseek_pays_for_judging_what_was_found_rightly(judgement: str, result: str, value: float) -> None:
    subject = sample([search(result), f"<judge>{judgement}</judge><answer>Paris</answer>"], ground_truth="Paris")
    assert graded("reseek", subject).value == value


def test_reseek_pays_each_turn_its_share_and_nothing_for_silence_or_more_words() -> None:
    turns = [search("Paris"), turn("<judge>good</judge><judge>bad</judge>", *search("x").calls), search("Paris"), "end"]
    # three searches could be judged: the first rightly, the second and third not at all
    assert graded("reseek", sample(turns, ground_truth="Paris")) == Graded(
        value=pytest.approx(1 / 3),  # type: ignore[arg-type]
        turns={1: pytest.approx(1 / 3)},  # type: ignore[dict-item]
    )
    assert graded("reseek", sample(["<judge>good</judge>", "<judge>good</judge>"], ground_truth="Paris")).value == 0.0


@pytest.mark.parametrize("searches", [1, 4, 12])
@pytest.mark.parametrize("end", ["I give up.", "Rome", "Paris Rome", "<answer>Rome</answer> Paris", ""])
def test_reseek_pays_nothing_for_nonsense_that_is_judged_bad(searches: int, end: str) -> None:
    # it was 1.0, the maximum
    nonsense = [turn("<judge>bad</judge>" * (index > 0), *search("nothing").calls) for index in range(searches)]
    assert graded("reseek", sample([*nonsense, "<judge>bad</judge>", end], ground_truth="Paris")).value == 0.0
    wrong = graded("reseek", sample([*nonsense, "<judge>good</judge>", end], ground_truth="Paris")).value
    assert wrong == pytest.approx(-1 / searches)
    one_useful = sample([search("Paris"), *nonsense, "<judge>bad</judge>", end], ground_truth="Paris")
    assert graded("reseek", one_useful).value == pytest.approx(searches / (searches + 1))


def test_reseek_reads_no_other_tool_and_no_call_that_was_not_carried_out() -> None:
    judged = "<judge>good</judge>"
    printed = turn("", Call(name="python", arguments={}, result="Paris"))
    refused = turn("", call("search", error_kind="unknown_tool"))
    assert graded("reseek", sample([printed, judged], ground_truth="Paris")).value == 0.0
    assert graded("reseek", sample([refused, judged], ground_truth="Paris")).value == 0.0
    assert graded("reseek", sample([printed, judged], ground_truth="Paris"), search_tools=["python"]).value == 1.0


def test_reseek_takes_a_verdict_that_is_a_call() -> None:
    said = turn("", Call(name="judge", arguments={"verdict": "Bad"}, result="It is removed."))
    assert graded("reseek", sample([search("Rome"), said, "Paris"], ground_truth="Paris")).value == 1.0
    assert graded("reseek", sample([search("Paris"), said, "end"], ground_truth="Paris")).value == -1.0


@pytest.mark.parametrize(
    ("extra", "value"), [({"facts": ["Lutetia"]}, 1.0), ({"steps": ["Lutetia"]}, -1.0), ({}, -1.0)]
)
def test_reseek_finds_a_step_to_the_answer_useful(extra: dict[str, Any], value: float) -> None:
    subject = sample([search("Lutetia is a city"), "<judge>good</judge>"], ground_truth="Paris", extra=extra)
    assert graded("reseek", subject).value == value
