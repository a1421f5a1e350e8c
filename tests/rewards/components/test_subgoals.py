"""Subgoals: each pays once, on the turn that reached it, and only by its check."""

from __future__ import annotations

import json
from typing import Any

import pytest
from samples import call, graded, sample, turn, value

from verl_agentic.base.errors import DataError
from verl_agentic.graders.components.llm_subgoals import llm_subgoals
from verl_agentic.graders.components.subgoals import subgoals
from verl_agentic.graders.turns.planned_subgoals import read_plan
from verl_agentic.rewards.component import ABSTAIN
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample, Turn
from verl_agentic.rewards.score import combine

ROOMS = [{"tool": "open", "arguments": {"room": str(n)}} for n in range(5)]


def walk(*, outcome: float, opened: dict[int, int]) -> Sample:
    """Returns 100 turns; `opened` maps turn -> room."""
    listed = [turn("", call("open", room=str(opened[n])) if n in opened else call("wait")) for n in range(100)]
    return sample(listed, outcome=outcome, extra={"subgoals": ROOMS})


def test_three_of_five_subgoals_pay_as_in_the_vector() -> None:
    # V-SUBGOAL: reached on turns 18, 37, 55; .1 each.
    verdict = graded(subgoals, walk(outcome=0.0, opened={18: 0, 37: 1, 55: 2}))
    assert verdict.value == pytest.approx(0.3)
    assert verdict.turns == pytest.approx({18: 0.1, 37: 0.1, 55: 0.1})


def test_a_success_is_worth_the_outcome_and_all_subgoals() -> None:
    # V-SUBGOAL: 1 + 5 * .1, and the last token gets the outcome alone: 5 + 1 places that are not 0.
    rubric = Rubric.from_mapping({"components": [{"use": "env"}, {"use": "subgoals"}]})
    episode = walk(outcome=1.0, opened={18: 0, 37: 1, 55: 2, 70: 3, 90: 4})
    parts = {term.name: term.component.checked(term.component(episode)) for term in rubric.terms}
    score = combine(rubric, parts)
    assert score.total == pytest.approx(1.5) and score.last == pytest.approx(1.0)
    assert sorted(score.turn_rewards) == [18, 37, 55, 70, 90]


def test_reaching_a_subgoal_again_pays_nothing() -> None:
    episode = walk(outcome=0.0, opened=dict.fromkeys(range(50), 2))
    assert graded(subgoals, episode).turns == pytest.approx({0: 0.1})


def test_more_subgoals_than_the_cap_pay_the_cap() -> None:
    assert value(subgoals, walk(outcome=0.0, opened={n: n for n in range(5)}), cap=0.25) == pytest.approx(0.25)


def reaches(subgoal: dict[str, Any], *turns: Turn | str, **options: Any) -> bool:
    verdict = graded(subgoals, sample(turns, extra={"subgoals": [subgoal]}, **options))
    return verdict.value == pytest.approx(0.1)


def test_a_call_reaches_its_subgoal_when_it_fits_and_succeeded() -> None:
    wanted = {"tool": "open", "arguments": {"room": "a", "key": None}}  # None is how a column of structs leaves it out
    assert reaches(wanted, turn("", call("open", room="a", fast=True)))
    assert not reaches(wanted, turn("", call("open", room="b")))
    assert not reaches(wanted, turn("", call("open")))
    assert not reaches(wanted, turn("", call("close", room="a")))
    assert not reaches(wanted, turn("", call("open", room="a", is_error=True)))
    assert not reaches(wanted, turn("", call("open", error_kind="unknown_tool", room="a")))


def test_a_text_must_be_the_policys_own() -> None:
    assert reaches({"text": "x = 2"}, "so x = 2.")
    assert not reaches({"text": "x = 2"}, turn("so", call(), observations=["x = 2"]))


def test_text_and_tool_must_come_in_one_turn() -> None:
    both = {"tool": "open", "text": "I open"}
    assert reaches(both, turn("I open it", call("open")))
    assert not reaches(both, "I open it", turn("", call("open")))


def test_what_the_environment_reports_is_credited_to_the_last_turn() -> None:
    wanted = {"info": "rooms", "at_least": 3}
    assert reaches(wanted, "a", "b", outcome=0.0, info={"rooms": 3.0})
    assert not reaches(wanted, "a", "b", outcome=0.0, info={"rooms": 2.0})
    assert reaches({"info": "won"}, "a", outcome=1.0, info={"won": 1.0})
    assert not reaches({"info": "won"}, "a", outcome=0.0, info={"won": 0.5})
    assert not reaches(wanted, "a", "b", outcome=0.0) and not reaches(wanted, "a", "b")
    episode = sample(["a", "b"], outcome=0.0, info={"rooms": 3.0}, extra={"subgoals": [wanted]})
    assert graded(subgoals, episode).turns == pytest.approx({1: 0.1})


def test_rows_without_subgoals_have_no_opinion() -> None:
    assert graded(subgoals, sample("x")) == graded(subgoals, sample("x", extra={"subgoals": []})) == ABSTAIN
    assert graded(llm_subgoals, sample("x")) == ABSTAIN


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ("open the door", "subgoals"),
        ({"tool": "open"}, "subgoals"),
        (["open the door"], "subgoal 0"),
        ([{"tool": "open"}, {"tol": "open"}], "'tol'"),
        ([{"name": "door"}], "tool or text"),
        ([{"tool": "open", "info": "rooms"}], "tool or text"),
        ([{"text": " "}], "empty"),
        ([{"tool": 3}], "empty"),
        ([{"tool": "open", "arguments": ["a"]}], "arguments"),
        ([{"text": "a", "arguments": {"b": 1}}], "arguments"),
        ([{"info": "rooms", "at_least": "3"}], "at_least"),
    ],
)
def test_subgoals_of_another_form_are_an_error_of_the_row(listed: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        value(subgoals, sample("x", extra={"subgoals": listed}))


PLAN = {
    "subgoals": [
        {"name": "key", "check": {"tool": "take", "arguments": {"object": "key"}}},
        {"name": "think", "check": None},
        {"name": "feel", "check": {"mood": "good"}},
        {"name": "say", "check": {"text": "done"}},
    ]
}


@pytest.mark.parametrize(
    "reply",
    [
        PLAN,
        json.dumps(PLAN),
        f"Here is it:\n```json\n{json.dumps(PLAN)}\n```\nGood luck!",
        f'<think>{{"subgoals": []}}?</think>\n{json.dumps(PLAN)}',
        json.dumps(PLAN).replace("feel", r"feel \(x\)"),
    ],
)
def test_a_planned_subgoal_that_cannot_be_verified_pays_nothing(reply: Any) -> None:
    verdict = graded(
        llm_subgoals, sample([turn("", call("take", object="key")), "think feel done"], extra={"plan": reply})
    )
    assert verdict.value == pytest.approx(0.25)  # 2 of 4, of .5
    assert verdict.turns == pytest.approx({0: 0.125, 1: 0.125}) and verdict.info == {"unverifiable": 2.0}


def test_a_plan_without_a_check_that_can_be_carried_out_pays_nothing() -> None:
    plan = {"subgoals": [{"name": "think", "check": None}]}
    assert value(llm_subgoals, sample("think", extra={"plan": plan})) == 0.0


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("1. take the key", "a plan must be JSON"),
        ('{"subgoals": ', "a plan must be JSON"),
        ("{" + '"a": {' * 100_000 + "}" * 100_001, "a plan must be JSON"),
        ("{}", 'a plan must be {"subgoals": '),
        ({"subgoals": "key"}, 'a plan must be {"subgoals": '),
        (["key"], 'a plan must be {"subgoals": '),
        ({"subgoals": []}, "must have 1 to 10 subgoals, got 0"),
        ({"subgoals": PLAN["subgoals"] * 3}, "must have 1 to 10 subgoals, got 12"),
        ({"subgoals": PLAN["subgoals"] * 2}, "subgoals of different names"),
        ({"subgoals": ["key"]}, 'must be {"name": ..., "check": ...}'),
        ({"subgoals": [{"name": "key"}]}, 'must be {"name": ..., "check": ...}'),
        ({"subgoals": [{"name": 3, "check": None}]}, 'must be {"name": ..., "check": ...}'),
    ],
)
def test_a_reply_that_is_no_plan_is_an_error(reply: Any, says: str) -> None:
    with pytest.raises(DataError) as caught:
        read_plan(reply)
    assert says in str(caught.value) and len(str(caught.value)) < 400
