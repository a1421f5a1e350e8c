"""Rewards for how tools are used."""

from __future__ import annotations

import time

import pytest
from samples import call, graded, sample, turn, value

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.components.tool_shaping import tool_shaping
from verl_agentic.rewards.answers.tool_calls import are_redundant, redundancy
from verl_agentic.rewards.component import ABSTAIN
from verl_agentic.rewards.components.efficiency import efficiency
from verl_agentic.rewards.components.tool_diversity import tool_diversity
from verl_agentic.rewards.components.tool_outcomes import tool_outcomes
from verl_agentic.rewards.components.tool_validity import tool_validity
from verl_agentic.rewards.sample import Call

# V-TOOLSHAPE: search q1 three times, browse, which does not exist, python.
SHAPED = (*[call("search", q="q1")] * 3, call("browse", error_kind="unknown_tool", u="u"), call("python", code="1+1"))


def test_shaping_is_that_of_the_vector() -> None:
    verdict = graded(tool_shaping, sample([turn("", *SHAPED)], extra={"needed_tools": ["search"]}))
    assert verdict.value == pytest.approx(-0.3)  # .1 - 2 * .05 - .3
    assert verdict.info == {"duplicates": 2.0, "unknown_tools": 1.0}


def test_each_turn_earns_its_own_share_of_the_shaping() -> None:
    verdict = graded(tool_shaping, sample([turn("", one) for one in SHAPED]), needed=["search", "python"])
    assert verdict.turns == pytest.approx({1: -0.05, 2: -0.05, 3: -0.3, 4: 0.1})
    assert verdict.value == pytest.approx(-0.3)


def test_penalties_of_shaping_have_a_bound() -> None:
    spam = sample([turn("", *[call("browse", error_kind="unknown_tool")] * 100)])
    assert value(tool_shaping, spam) == pytest.approx(-0.5)
    assert value(tool_shaping, spam, max_penalty=0.1) == pytest.approx(-0.1)


def test_a_needed_tool_pays_once_and_only_when_it_was_carried_out() -> None:
    extra = {"needed_tools": ["search"]}
    assert value(tool_shaping, sample([turn("", call(q="a"), call(q="b"))], extra=extra)) == pytest.approx(0.1)
    assert value(tool_shaping, sample([turn("", call(error_kind="wrong_arguments"))], extra=extra)) == 0.0
    assert value(tool_shaping, sample([turn("", call(q="a"))])) == 0.0
    assert value(tool_shaping, sample([turn("", call(q="a"))], extra={"needed_tools": None}), needed=["search"]) == 0.1


def test_names_of_needed_tools_must_be_a_list() -> None:
    with pytest.raises(DataError, match="'search'"):
        value(tool_shaping, sample("x", extra={"needed_tools": "search"}))


@pytest.mark.parametrize(
    ("succeeded", "failed", "earned"),
    [(3, 1, 0.1), (5, 0, 0.1), (0, 4, -0.1), (1, 0, 0.05), (0, 1, -0.05), (0, 0, 0.0)],
)
def test_success_and_failure_of_calls_are_paid_up_to_the_cap(succeeded: int, failed: int, earned: float) -> None:
    calls = [call(n=n) for n in range(succeeded)] + [call(is_error=True, n=n) for n in range(failed)]
    assert value(tool_outcomes, sample([turn("", *calls)])) == pytest.approx(earned)


def test_what_pays_nothing_has_no_range() -> None:
    assert [tool_outcomes.make(options).low for options in ({}, {"failure": 0.0})] == [-0.1, 0.0]
    assert [tool_outcomes.make(options).high for options in ({}, {"success": 0.0})] == [0.1, 0.0]


def test_turns_are_paid_until_the_cap_is_reached() -> None:
    episode = sample([turn("", call(n=n)) for n in range(4)] + [turn("", call(is_error=True))])
    verdict = graded(tool_outcomes, episode)
    assert verdict.turns == pytest.approx({0: 0.05, 1: 0.05}) and verdict.value == pytest.approx(0.1)


def test_a_call_that_was_never_answered_is_neither_success_nor_failure() -> None:
    assert value(tool_outcomes, sample([turn("", Call(name="search", arguments={}))])) == 0.0


VALIDITY = (
    call("a"),
    call("b", is_error=True),
    call("c", error_kind="unknown_tool"),
    call("d", error_kind="malformed_json"),
)


def test_validity_is_a_share_that_more_calls_do_not_raise() -> None:
    assert value(tool_validity, sample([turn("", *VALIDITY)])) == 0.5
    assert value(tool_validity, sample([turn("", *VALIDITY)]), strict=False) == 0.75
    assert value(tool_validity, sample([turn("", call("a"))])) == 1.0
    assert value(tool_validity, sample([turn("", *[call("a")] * 8)])) == 1.0
    assert graded(tool_validity, sample("no calls")) == ABSTAIN


# V-TOOLDIV: calls of search and python -> entropy over ln 2, share of the first.
@pytest.mark.parametrize(
    ("counts", "entropy", "top_share"), [((8, 0), 0.0, 1.0), ((4, 4), 1.0, 0.5), ((6, 2), 0.811278, 0.75)]
)
def test_diversity_is_that_of_the_vector(counts: tuple[int, int], entropy: float, top_share: float) -> None:
    calls = [call("search")] * counts[0] + [call("python")] * counts[1]
    verdict = graded(tool_diversity, sample([turn("", *calls)]), tools=["search", "python"])
    assert verdict.value == pytest.approx(entropy, abs=1e-6) and verdict.info["top_share"] == top_share


def test_diversity_counts_only_calls_that_were_carried_out() -> None:
    calls = [call("search"), call("python", error_kind="wrong_arguments"), call("made_up", error_kind="unknown_tool")]
    assert value(tool_diversity, sample([turn("", *calls)]), tools=["search", "python"]) == 0.0
    assert value(tool_diversity, sample("no calls"), tools=["search", "python"]) == 0.0


@pytest.mark.parametrize("tools", [["search"], ["search", "search"], "search"])
def test_diversity_needs_two_tools(tools: object) -> None:
    with pytest.raises(ConfigError, match=r"two or more names of tools|must be a list of text"):
        tool_diversity.make({"tools": tools})


def test_half_of_the_calls_in_vain_costs_a_half() -> None:
    # D20: 2 of 4; with a weight of .1, and format of weight .2, a success is worth 1 + .2 - .1 * .5 = 1.15.
    calls = [call(q="a"), call(q="a"), call(q="b"), call(error_kind="malformed_json")]
    assert redundancy(calls) == 0.5
    verdict = graded(efficiency, sample([turn("", *calls[:2]), turn("", *calls[2:])]))
    assert verdict.value == -0.5 and verdict.turns == pytest.approx({0: -0.25, 1: -0.25})
    assert 1.0 + 0.2 + 0.1 * (verdict.value or 0.0) == pytest.approx(1.15)
    assert value(efficiency, sample("no calls")) == redundancy([]) == 0.0


def test_a_repeated_call_with_a_new_answer_was_not_in_vain() -> None:
    tests = [Call(name="run_tests", arguments={}, result=text) for text in ("2 failed", "all passed", "2 failed")]
    assert are_redundant(tests) == [False, False, True]


def test_the_order_of_arguments_makes_no_other_call() -> None:
    assert are_redundant([call(a=1, b=2), call(b=2, a=1), call(a="1", b=2)]) == [False, True, False]


def test_arguments_that_nest_too_deeply_hide_no_repetition() -> None:
    deep: object = "x"
    for _ in range(20_000):
        deep = [deep]
    assert are_redundant([call(q=deep), call(q=deep)]) == [False, True]
    assert value(tool_shaping, sample([turn("", call(q=deep), call(q=deep))])) == -0.05


def test_ten_thousand_calls_are_judged_at_once() -> None:
    episode = sample([turn("", *[call("search", q=str(n)) for n in range(10_000)])])
    started = time.perf_counter()
    for component in (tool_shaping, tool_outcomes, tool_validity, efficiency):
        graded(component, episode)
    graded(tool_diversity, episode, tools=["search", "python"])
    assert time.perf_counter() - started < 5.0
