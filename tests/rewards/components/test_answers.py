"""Components that compare short answers: exact_match, f1, search_r1, search_r1_format, research, arpo."""

from __future__ import annotations

import time
from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.rewards.component import ABSTAIN, load_component
from verl_agentic.rewards.sample import Call, Sample, Turn

QA = ("exact_match", "f1", "search_r1", "search_r1_format", "research", "arpo", "ssrl", "router_r1", "reseek", "prs")


def score(name: str, subject: Sample, **options: Any) -> float:
    component = load_component(name).make(options)
    value = component.checked(component(subject)).value
    assert value is not None
    return value


def found(text: str, name: str = "search") -> Call:
    return Call(name=name, arguments={"query": "q"}, result=text)


def tagged(text: str, *calls: Call, **fields: Any) -> Turn:
    return turn(text, *calls, **fields)


@pytest.mark.parametrize("name", QA)
def test_a_row_without_ground_truth_has_no_score(name: str) -> None:
    component = load_component(name).make({})
    assert component(sample("<answer>Paris</answer>")) == ABSTAIN


@pytest.mark.parametrize("name", QA)
@pytest.mark.parametrize("ground_truth", ["", [], 7, {"answer": "Paris"}])
def test_a_ground_truth_of_another_form_is_refused(name: str, ground_truth: Any) -> None:
    with pytest.raises(DataError, match="ground_truth"):
        load_component(name).make({})(sample("<answer>Paris</answer>", ground_truth=ground_truth))


@pytest.mark.parametrize("name", QA)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "</answer>" * 1000,
        "<answer>" * 1000,
        r"<think><answer>\boxed{",
        "<",
        "<think>" * 1000,
        "\ud800\x00",
        "<answer>" + "x" * 20_000 + "</answer>",
    ],
    ids=["nothing", "closing", "opening", "open-box", "bracket", "thoughts", "half-character", "long"],
)
def test_nothing_that_the_policy_writes_is_an_error_or_right(name: str, text: str) -> None:
    options = {"cheapness": 0.5} if name == "router_r1" else {}
    assert score(name, sample(text, ground_truth="Paris"), **options) <= 0.2


@pytest.mark.sample(4, slow=12)
@pytest.mark.parametrize("name", ["exact_match", "f1", "search_r1", "research", "arpo", "ssrl", "router_r1", "prs"])
@pytest.mark.parametrize(
    "unit", ["<answer>", "</think>", "<search>a</search>", r"\boxed{", "the ", "<answer>x</answer>"]
)
def test_2_mb_are_scored_in_linear_time(name: str, unit: str) -> None:
    text = f"<think>a</think><answer>{unit * (2_000_000 // len(unit))}</answer>"
    options = {"cheapness": 0.5} if name == "router_r1" else {}
    started = time.thread_time()  # of the processor: what else the machine does is not counted
    assert score(name, sample(text, ground_truth="Paris"), **options) <= 0.2
    assert time.thread_time() - started < 4.0  # linear time takes less than 0.2 s; quadratic time would be minutes


@pytest.mark.parametrize("name", ["exact_match", "f1", "search_r1", "search_r1_format", "research", "arpo", "ssrl"])
def test_an_answer_that_stands_in_a_tools_answer_only_is_none(name: str) -> None:
    observed = r"<think>x</think><answer>\boxed{Paris}</answer>"
    turns = [tagged("<think>t</think><search>q</search>", found(observed)), "<think>I do not know</think>"]
    # search_r1_format would pay for what was found, but only in the right form
    assert score(name, sample(turns, ground_truth="Paris")) <= 0.0


@pytest.mark.parametrize(
    ("answer", "golden", "em", "words"),
    [
        ("The Beatles.", ["Beatles"], 1.0, 1.0),
        ("beatles band", ["Beatles"], 0.0, 2 / 3),
        ("Barack Obama", "Obama", 0.0, 2 / 3),
        ("NYC", {"target": ["New York", "NYC"]}, 1.0, 1.0),
        ("<think>Rome?</think> Paris", "Paris", 1.0, 1.0),
        ("<think>Paris", "Paris", 0.0, 0.0),
        ("yes", "yes it is", 0.0, 0.0),
    ],
)
def test_final_answers_are_compared_whole_and_by_words(answer: str, golden: Any, em: float, words: float) -> None:
    subject = sample("unread", final_answer=answer, ground_truth=golden)
    assert score("exact_match", subject) == em
    assert score("f1", subject) == pytest.approx(words)


@pytest.mark.parametrize(
    ("text", "value"),
    [  # vectors.json, V-SEARCHR1
        ("<think>t</think><answer>Paris</answer>", 1.0),
        ("<answer>Rome</answer> <answer> the paris </answer>", 1.0),
        ("Paris", 0.0),
        ("<answer>Paris</answer>" * 11, 0.25),
        ("<answer>Paris</answer>" * 10, 1.0),
        ("<answer>Paris</answer>" + "</answer>" * 10, 0.25),
        ("<answer>Paris</answer> <answer>Rome</answer>", 0.0),
        ("<answer>Paris</answer><|im_end|>", 1.0),
    ],
)
def test_search_r1_counts_the_last_answer_tags(text: str, value: float) -> None:
    assert score("search_r1", sample(text, ground_truth=["Paris"])) == value


@pytest.mark.parametrize(("said", "value"), [("<answer>Rome</answer>", 0.0), ("I do not know", 0.0)])
def test_search_r1_does_not_see_observations(said: str, value: float) -> None:
    # vectors.json, V-SEARCHR1: in_observation 0, and obs_only, which is 1 in verl, must be 0
    turns = [tagged("<search>q</search>", found("see <answer>Paris</answer>")), said]
    assert score("search_r1", sample(turns, ground_truth="Paris")) == value


SEARCHED = "<think>t</think> <search>q</search>"


@pytest.mark.parametrize(
    ("turns", "value"),
    [
        ([tagged(SEARCHED, found("x")), "<think>u</think>\n<answer>Paris</answer><|im_end|>"], 1.0),
        ([tagged(SEARCHED, found("x")), "so <answer>Paris</answer>"], 0.8),
        ([tagged(SEARCHED, found("It is Paris.")), "<think>u</think><answer>Rome</answer>"], 0.3),
        ([tagged(SEARCHED, found("x")), "<think>u</think><answer>Rome</answer>"], 0.2),
        ([tagged(SEARCHED, found("It is Paris.")), "so <answer>Rome</answer>"], 0.1),
        ([tagged(SEARCHED, found("It is Paris.")), "so"], 0.0),
        (["<think>u</think><answer>Rome</answer>"], 0.2),
        # what was not found is not paid: parts of words, its own information, a call that no tool carried out
        ([tagged(SEARCHED, found("Parisian")), "<think>u</think><answer>Rome</answer>"], 0.2),
        ([SEARCHED + "<information>Paris</information>", "<think>u</think><answer>Rome</answer>"], 0.1),
        (
            [tagged(SEARCHED, Call(name="search", arguments={}, result="Paris", error_kind="wrong_arguments")),
             "<think>u</think><answer>Rome</answer>"],
            0.2,
        ),
        (["<think>a</think><think>b</think><answer>Paris</answer>"], 0.8),
    ],
    ids=["right", "right-broken", "found", "not-found", "broken", "none", "no-search", "part-of-a-word",
         "made-up", "not-carried-out", "two-thoughts"],
)  # fmt: skip
def test_search_r1_format_grades_form_and_finds(turns: list[Any], value: float) -> None:
    assert score("search_r1_format", sample(turns, ground_truth="Paris")) == pytest.approx(value)


def test_search_r1_format_takes_the_scripts_values_and_refuses_a_wrong_answer_worth_more_than_a_right_one() -> None:
    turns = [tagged(SEARCHED, found("Paris")), "<think>u</think><answer>Rome</answer>"]
    assert score("search_r1_format", sample(turns, ground_truth="Paris"), retrieval=0.0) == pytest.approx(0.2)
    with pytest.raises(ConfigError, match=r"structure=0\.9"):
        load_component("search_r1_format").make({"structure": 0.9, "retrieval": 0.2})


@pytest.mark.parametrize(
    ("answer", "golden", "good_form"),
    [  # vectors.json, V-RESEARCH
        ("Barack Obama", "Obama", 0.666667),
        ("president barack hussein obama", "barack obama", 0.666667),
        ("yes", "yes it is", 0.1),
        ("paris france", "rome", 0.1),
    ],
)
def test_research_is_f1_in_the_right_form_else_0(answer: str, golden: str, good_form: float) -> None:
    good = rf"<think>t</think><answer>it is \boxed{{{answer}}}</answer>"
    assert score("research", sample(good, ground_truth=golden)) == pytest.approx(good_form, abs=1e-6)
    assert score("research", sample(good.replace("</think>", ""), ground_truth=golden)) == 0.0
    assert score("research", sample([good, "more"], ground_truth=golden)) == 0.0


def test_research_takes_the_last_box_and_wants_it_closed() -> None:
    two = r"<think>t</think><answer>\boxed{Paris} \boxed{Rome}</answer>"
    assert score("research", sample(two, ground_truth="Rome")) == 1.0
    assert score("research", sample(two, ground_truth="Paris")) == 0.1
    assert score("research", sample(r"<think>t</think><answer>\boxed{Paris</answer>", ground_truth="Paris")) == 0.0


ANSWERED = r"<think>u</think><answer>\boxed{Barack Obama}</answer>"
SEARCH, PYTHON = ("<think>t</think><search>q</search>", found("x")), ("<python>1</python>", found("x", "python"))


@pytest.mark.parametrize(
    ("turns", "golden", "value"),
    [  # vectors.json, V-ARPO-R: F1 2/3, with both tools .766667, alone .666667, wrong 0, bad -1
        ([turn(*SEARCH), turn(*PYTHON), ANSWERED], "Obama", 0.766667),
        ([turn(*SEARCH), ANSWERED], "Obama", 0.666667),
        ([turn(*SEARCH), turn(*PYTHON), ANSWERED], "Rome", 0.0),
        ([turn(*SEARCH), turn(*PYTHON), "Barack Obama"], "Obama", -1.0),
        # the original pays for the tags alone
        (["<think>a</think><search>q</search><python>1</python>" + ANSWERED], "Obama", 0.666667),
        ([turn(*SEARCH), turn("<python>1", found("x", "python")), ANSWERED], "Obama", -1.0),
        ([turn(*SEARCH), turn(PYTHON[0], call("python", error_kind="wrong_arguments")), ANSWERED], "Obama", 0.666667),
    ],
    ids=["both", "one", "wrong", "bad-form", "only-written", "open-code", "not-carried-out"],
)
def test_arpo_pays_for_both_tools_only_when_they_ran(turns: list[Any], golden: str, value: float) -> None:
    assert score("arpo", sample(turns, ground_truth=golden)) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("options", "high"), [({}, 1.1), ({"python_tools": []}, 1.0), ({"search_tools": []}, 1.0)])
def test_the_maximum_of_arpo_can_be_reached_with_one_tool(options: dict[str, Any], high: float) -> None:
    assert load_component("arpo").make(options).high == high


def test_arpo_knows_tools_by_the_names_it_is_given() -> None:
    turns = [tagged("<think>t</think>", found("x", "bing")), tagged("", found("x", "jupyter")), ANSWERED]
    named = {"search_tools": ["bing"], "python_tools": ["jupyter"]}
    assert score("arpo", sample(turns, ground_truth="Obama"), **named) == pytest.approx(0.766667, abs=1e-6)
    assert score("arpo", sample(turns, ground_truth="Obama")) == pytest.approx(0.666667, abs=1e-6)
