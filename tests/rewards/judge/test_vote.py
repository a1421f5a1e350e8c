"""Verdicts of several judges together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.graders.judge.vote import combined, conservative, majority, passed


@pytest.mark.parametrize(
    ("votes", "decided"),
    [
        ([1, 1, 0], 1),  # V-MAJ
        ([0, 0, 1], 0),
        ([1], 1),
        ([1, 0], None),  # tie
        ([1, 1, 0, 0], None),
        ([1, 1, None], 1),
        ([1, 0, None], None),
        ([1, None, None], None),  # one of three is no majority
        ([1, 1, 1, 0, None], 1),
        ([1, 1, 0, None, None], None),
        ([None, None, None], None),
        ([], None),
    ],
)
def test_more_than_half_of_all_who_were_asked_decide_else_nobody(votes: list[int | None], decided: int | None) -> None:
    assert majority(votes) == decided
    assert majority(votes[::-1]) == decided


def test_scores_are_combined_where_enough_are_there_and_agree() -> None:
    assert combined([0.5, 0.25, None], max_spread=0.5) == 0.375
    assert combined([0.5, 0.25, 0.4], max_spread=0.5) == 0.4
    assert combined([0.5, None], max_spread=0.5) is None
    assert combined([0.9, 0.7, 0.2], max_spread=0.5) is None
    assert combined([0.9, 0.7, 0.2], aggregate="min", max_spread=1.0) == 0.2


def test_a_conservative_score_is_as_in_the_vector() -> None:
    assert conservative([0.9, 0.7, 0.2], aggregate="mean_minus_std") == pytest.approx(0.305608, abs=1e-6)  # V-MAJ
    assert conservative([0.9, 0.7, 0.2], aggregate="min") == 0.2
    assert conservative([0.0, 0.0, 1.0], aggregate="mean_minus_std") == 0.0


@pytest.mark.parametrize(
    ("votes", "num_against", "value"),
    [
        ([None], 1, 0.0),
        ([1.0, None], 1, 0.0),  # a tie that an invalid answer has made
        ([1.0, 1.0, None], 1, 1.0),
        ([1.0, None, None], 2, 0.0),
        ([1.0, 1.0, 0.0, None], 1, 0.0),
        ([1.0, 0.0], 0, None),  # two judges that disagree
        ([1.0, None, None], 1, None),  # one is missing, and could have made the majority
        ([None, None], 1, 0.0),  # not even the missing one could
        ([None, None], 0, None),
        ([0.0, None, None], 0, None),
    ],
)
def test_an_invalid_answer_is_a_vote_against_and_a_missing_one_is_none(
    votes: list[float | None], num_against: int, value: float | None
) -> None:
    assert passed(votes, num_against=num_against) == value


@given(st.lists(st.sampled_from([1.0, 0.0, None]), min_size=1, max_size=5), st.integers(0, 5))
def test_talking_a_judge_out_of_its_form_never_pays(votes: list[float | None], num_against: int) -> None:
    num_against = min(num_against, votes.count(None))
    strict = passed(votes, num_against=num_against)
    assert strict is None or strict in (0.0, 1.0)
    if strict == 1.0:
        assert 2 * votes.count(1.0) > len(votes)
    for index, vote in enumerate(votes):  # whatever the judge had said before
        if vote is None:
            continue
        silenced = [*votes[:index], None, *votes[index + 1 :]]
        talked_out = passed(silenced, num_against=num_against + 1)
        assert not (strict in (0.0, None) and talked_out == 1.0)
        assert not (strict == 0.0 and talked_out is None), "what was 0 is not made void"


def test_scores_of_invalid_answers_are_0_and_no_disagreement() -> None:
    assert combined([None], max_spread=0.5, num_zeros=1) == 0.0
    assert combined([0.9, 0.8, None], max_spread=0.5, num_zeros=1) == 0.8
    assert combined([0.9, None, None], max_spread=0.5, num_zeros=2) == 0.0
    assert combined([0.9, None, None], max_spread=0.5, num_zeros=0) is None
    assert combined([None, None], max_spread=0.5) is None
    assert combined([0.9, 0.8, None], aggregate="min", max_spread=0.5, num_zeros=1) == 0.0
