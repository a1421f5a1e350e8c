"""Components on the last boxed answer: math, retool, reft."""

from __future__ import annotations

from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.graders.components.reft import is_number
from verl_agentic.graders.components.retool import softened
from verl_agentic.rewards.component import ABSTAIN, Graded, load_component
from verl_agentic.rewards.sample import Call, Sample

FAMILY = ("math", "retool", "reft")
BOMB = r"\boxed{\sum_{n=1}^{1000000000} n^n}"


async def graded(name: str, subject: Sample, **options: Any) -> Graded:
    component = load_component(name).make(options)
    return component.checked(await component(subject))


async def value(name: str, subject: Sample, **options: Any) -> float | None:
    return (await graded(name, subject, **options)).value


@pytest.mark.parametrize("name", FAMILY)
async def test_a_row_without_ground_truth_has_no_score(name: str) -> None:
    assert await load_component(name).make({})(sample(r"\boxed{1}")) == ABSTAIN


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("ground_truth", ["", " ", [], {"target": "1"}, True])
async def test_a_ground_truth_that_is_no_expression_is_refused(name: str, ground_truth: Any) -> None:
    with pytest.raises(DataError, match="ground_truth"):
        await load_component(name).make({})(sample(r"\boxed{1}", ground_truth=ground_truth))


@pytest.mark.parametrize(
    ("turns", "truth", "score"),
    [
        ([r"so \boxed{42}<|im_end|>"], "42", 1.0),
        ([r"\boxed{42}" + " " * 400], 42, 1.0),  # vectors.json, V-RETOOL-300: -1 in math_dapo
        ([r"\boxed{\frac{1}{2}}"], 0.5, 1.0),
        ([r"\boxed{42} no, \boxed{41}"], "42", 0.0),
        ([r"\boxed{41} no, \boxed{42}"], "42", 1.0),
        ([r"\boxed{42}", r"no, \boxed{41}"], "42", 0.0),
        ([r"\boxed{42}", "done"], "42", 1.0),
        ([r"\boxed{42} \boxed{}"], "42", 0.0),
        ([r"<think>\boxed{42}</think> no idea"], "42", 0.0),
        ([r"<think>perhaps \boxed{42}"], "42", 0.0),
        ([r"<think>\boxed{41}</think> \boxed{42}"], "42", 1.0),
        (["42"], "42", 0.0),
        ([], "42", 0.0),
        ([turn("print(6 * 7)", Call(name="python", arguments={}, result=r"\boxed{42}")), "so"], "42", 0.0),
    ],
    ids=["right", "far-from-the-end", "equivalent", "last-is-wrong", "last-is-right", "last-turn", "earlier-turn",
         "empty", "in-reasoning", "in-open-reasoning", "after-reasoning", "no-box", "nothing", "only-the-tool"],
)  # fmt: skip
async def test_the_last_box_that_the_policy_wrote_counts(turns: list[Any], truth: Any, score: float) -> None:
    assert await value("math", sample(turns, ground_truth=truth)) == score


@pytest.mark.parametrize(("name", "score"), [("math", 0.0), ("retool", -1.0), ("reft", 0.0)])
async def test_an_answer_that_algebra_cannot_finish_is_wrong_and_told(name: str, score: float) -> None:
    found = await graded(name, sample(BOMB, ground_truth="3"))
    assert found.value == score
    assert found.info == ({"unjudged": 1.0} if name == "math" else {})


@pytest.mark.parametrize("name", FAMILY)
async def test_a_ground_truth_that_algebra_cannot_finish_is_an_error(name: str) -> None:
    truth = BOMB.removeprefix(r"\boxed{").removesuffix("}")
    with pytest.raises(ScoringError, match="no verdict"):
        await load_component(name).make({})(sample(r"\boxed{1}", ground_truth=truth))


@pytest.mark.slow
async def test_10_mb_of_open_boxes_are_no_answer() -> None:
    text = r"\boxed{1}" + r"\boxed{" * 1_400_000
    assert await value("math", sample(text, ground_truth="1")) == 1.0
    assert await value("math", sample(r"\boxed{" + "1" * 10_000_000 + "}", ground_truth="1")) == 0.0


def test_a_wrong_answer_costs_less_the_more_turns_there_were() -> None:
    # vectors.json, V-RETOOL
    assert [softened(n) for n in (2, 4, 6, 10, 12, 20)] == pytest.approx([-1.0, -0.9, -0.8, -0.6, -0.6, -0.6])


async def test_retool_is_plus_or_minus_1_and_softer_where_tools_ran() -> None:
    ran = [turn("a", call("python")), turn("b", call("python"), call("python", is_error=True))]
    refused = [turn("a", call("python", error_kind="malformed_json"))] * 9
    wrong = sample([*ran, r"\boxed{1}"], ground_truth="2")
    assert await value("retool", sample([*ran, r"\boxed{2}"], ground_truth="2"), soften_wrong=True) == 1.0
    assert await value("retool", wrong) == -1.0
    assert await value("retool", wrong, soften_wrong=True) == pytest.approx(-0.8)
    spam = sample([*refused, "no"], ground_truth="2")
    assert await value("retool", spam, soften_wrong=True) == -1.0


@pytest.mark.parametrize(
    ("text", "truth", "score"),
    [
        (r"\boxed{7}", "7", 1.0),  # vectors.json, V-REFT: right, wrong number, no answer
        (r"\boxed{8}", "7", 0.1),
        ("8", "7", 0.0),
        (r"\boxed{}", "7", 0.0),
        (r"\boxed{banana}", "7", 0.0),
        (r"\boxed{\frac{1}{3}}", "7", 0.1),
        (r"\boxed{B}", "A", 0.1),  # a choice is an answer to a choice
    ],
)
async def test_reft_pays_a_little_for_an_answer_that_is_one(text: str, truth: str, score: float) -> None:
    assert await value("reft", sample(text, ground_truth=truth)) == score


@pytest.mark.parametrize("text", ["7", "-7.5", "1,234", r"\$5", r"12\%", "3/4", r"-\dfrac{3}{4}", "1e3"])
def test_numbers_are_known_as_they_are_written(text: str) -> None:
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1/2/3", r"\frac{x}{2}", "7 apples", "1e999"])
def test_what_is_no_finite_number_is_none(text: str) -> None:
    assert not is_number(text)


@pytest.mark.parametrize(("must", "score"), [(False, 1.0), (True, 0.0)])
async def test_the_question_in_a_box_is_no_answer_where_it_must_be_evaluated(must: bool, score: float) -> None:
    for boxed in (
        r"37 \times 84",
        r"37\times\,84",
        "37 × 84",
        "37·84",
        "37/(1/84)",
        "3109-1",
        r"\frac{6216}{2}",
        "3108^1",
    ):
        subject = sample(rf"\boxed{{{boxed}}}", ground_truth="3108")
        assert await value("math", subject, must_be_evaluated=must) == score, boxed
    assert await value("math", sample(r"\boxed{3108}", ground_truth="3108"), must_be_evaluated=must) == 1.0
