"""Components that judge the state in which an episode leaves its world: a shop, a database, an editor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.graders.components.cursor_tab import cursor_tab, suggestion_value
from verl_agentic.graders.components.tau_bench import tau_bench
from verl_agentic.graders.components.webshop import type_score, webshop, webshop_score
from verl_agentic.rewards.component import ABSTAIN

GOAL = {"attributes": ["red", "cotton"], "options": ["size m"]}
BOUGHT = {"bought": 1.0, "matched_attributes": 1.0, "matched_options": 1.0, "price_ok": 1.0, "type_score": 1.0}


def shop(ground_truth: Any = GOAL, answer: str = "Bought.", **info: float) -> Any:
    return webshop.make({})(sample(answer, ground_truth=ground_truth, outcome=0.0, info={**BOUGHT, **info}))


def test_the_shop_gives_the_vectors() -> None:
    # vectors.json, V-WEBSHOP
    assert shop() == 0.75
    assert shop(type_score=0.5) == 0.375
    assert shop(matched_attributes=2) == 1.0
    assert shop(price_ok=0) == 0.5
    assert shop(json.dumps(GOAL)) == 0.75


def test_an_option_chosen_twice_is_worth_no_more_than_one() -> None:
    assert shop(matched_attributes=2, matched_options=5) == 1.0
    counts = {"attributes": 0, "options": 0, "price_ok": True, "type_score": 1.0}
    assert webshop_score(matched_attributes=3, matched_options=3, **counts) == 1.0  # type: ignore[arg-type]


def test_nothing_bought_is_worth_nothing_whatever_is_said() -> None:
    unbought = sample("I have bought red cotton, size m.", ground_truth=GOAL, outcome=0.0, info={"bought": 0.0})
    assert webshop.make({})(unbought) == 0.0


def test_the_type_falls_in_steps() -> None:
    assert [type_score(match) for match in (0.0, 0.05, 0.1, 0.2, 0.21, 1.0)] == [0.0, 0.1, 0.5, 0.5, 1.0, 1.0]
    assert type_score(0.15, query_match=True) == type_score(0.15, category_match=True) == 1.0
    assert type_score(0.05, query_match=True) == 0.1 and type_score(0.0, category_match=True) == 0.0


def test_a_shop_that_does_not_report_is_an_error() -> None:
    with pytest.raises(ScoringError, match="bought"):
        webshop.make({})(sample("x", ground_truth=GOAL))
    with pytest.raises(ScoringError, match="price_ok"):
        webshop.make({})(sample("x", ground_truth=GOAL, outcome=0.0, info={"bought": 1.0}))
    with pytest.raises(DataError):
        shop({"attributes": 3, "options": []})
    assert shop(None) is ABSTAIN


def tau(db_equal: float, *turns: Any, outputs: Any = ("$1,234.50", "Boston")) -> Any:
    row = {"outputs": list(outputs)}
    return tau_bench.make({})(sample(turns, ground_truth=row, outcome=0.0, info={"db_equal": db_equal}))


SAID = ("You get $1,234.50 back.", "Your flight goes to BOSTON.")


def test_tau_bench_gives_the_vectors() -> None:
    # vectors.json, V-TAU: database equal [1, 1, 0], outputs found [1, 0, 1] -> [1, 0, 0]
    assert [tau(1, *SAID), tau(1, SAID[0]), tau(0, *SAID)] == [1.0, 0.0, 0.0]


def test_commas_and_case_do_not_matter_and_no_outputs_are_all_said() -> None:
    assert tau(1, "1,234", outputs=["1234"]) == tau(1, "1234", outputs=["1,234"]) == 1.0
    assert tau(1, "anything", outputs=[]) == 1.0 and tau(0, "anything", outputs=[]) == 0.0


def test_only_what_the_user_was_told_was_said() -> None:
    out = ["42"]
    assert tau(1, "It is 42.", outputs=out) == 1.0
    assert tau(1, "<think>42</think>It is less.", outputs=out) == 0.0
    assert tau(1, "<think>42", outputs=out) == 0.0
    assert tau(1, turn("It is 42.", call("transfer")), "Done.", outputs=out) == 0.0
    assert tau(1, turn("", call("note", text="42")), "Done.", outputs=out) == 0.0
    assert tau(1, turn("Hello", observations=["42"]), "Done.", outputs=out) == 0.0


def test_a_database_that_nobody_compared_is_an_error() -> None:
    with pytest.raises(ScoringError, match="db_equal"):
        tau_bench.make({})(sample("x", ground_truth={"outputs": []}))
    for wrong in ({}, {"outputs": "42"}, {"outputs": [""]}, {"outputs": [42]}, "text"):
        with pytest.raises(DataError):
            tau_bench.make({})(sample("x", ground_truth=wrong, outcome=0.0, info={"db_equal": 1.0}))
    assert tau_bench.make({})(sample("x")) is ABSTAIN


def test_showing_pays_above_a_quarter() -> None:
    # vectors.json, V-CURSOR
    assert [suggestion_value(p) for p in (0.1, 0.25, 0.4)] == pytest.approx([-0.15, 0.0, 0.15])
    for p in (0.1, 0.7):
        assert suggestion_value(p, threshold=0.4) == pytest.approx(p * 0.6 - (1 - p) * 0.4)


def tab(answer: str, accepted: float | None = None, ground_truth: Any = None, **options: Any) -> Any:
    info = {} if accepted is None else {"accepted": accepted}
    outcome = None if accepted is None else 0.0
    subject = sample(answer, ground_truth=ground_truth, outcome=outcome, info=info)
    return cursor_tab.make(options)(subject)


def test_a_suggestion_is_worth_what_the_user_does_with_it() -> None:
    assert [tab("x = 1", 1), tab("x = 1", 0), tab("", 0), tab("  \n", 1)] == [0.75, -0.25, 0.0, 0.0]
    assert tab("x = 1", 0.4) == pytest.approx(0.15)
    assert [tab("x = 1\n", ground_truth="x = 1"), tab("x = 2", ground_truth="x = 1")] == [0.75, -0.25]
    assert tab("x", 1, threshold=0.5) == 0.5
    made = cursor_tab.make({})
    assert (made.low, made.high) == (-0.25, 0.75)


def test_suggestions_nobody_judged_abstain_and_wrong_judgements_are_errors() -> None:
    assert tab("x") is ABSTAIN
    with pytest.raises(DataError):
        tab("x", ground_truth=7)
    with pytest.raises(ScoringError):
        tab("x", 1.5)
    for threshold in (0, 1):
        with pytest.raises(ConfigError):
            cursor_tab.make({"threshold": threshold})
