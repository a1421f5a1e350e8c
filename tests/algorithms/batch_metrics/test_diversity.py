"""Equality of the sessions of a group, by sampled tokens and by actions."""

from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.credit.batch_metrics.diversity import diversity, sequence_keys
from verl_agentic.credit.credit.batch import Steps

Tensor = torch.Tensor


def keys(rows: list[list[int]], *, mask: list[list[int]] | None = None) -> list[int]:
    values = torch.tensor(rows)
    return sequence_keys(values, torch.ones_like(values).bool() if mask is None else torch.tensor(mask).bool()).tolist()


def distinct(texts: list[int], **more: object) -> float:
    return diversity(make_batch([0.0] * len(texts), text_B=torch.tensor(texts), **more))["distinct_share"]  # type: ignore[arg-type]


def steps(actions: list[list[int]], *, first_turn: list[int] | None = None) -> Steps:
    action_BK = torch.tensor(actions)
    return Steps(
        state_BK=action_BK.clamp(max=0),
        action_BK=action_BK,
        first_turn_B=torch.tensor(first_turn or [0] * len(actions)),
    )


def by_actions(of: Steps, **more: object) -> float:
    return diversity(make_batch([0.0] * len(of.action_BK), steps=of, **more))["distinct_action_share"]  # type: ignore[arg-type]


def test_the_same_sampled_tokens_are_the_same_whatever_stands_between_and_after_them() -> None:
    found = keys([[5, 9, 6, 0], [5, 6, 7, 7], [6, 5, 0, 0]], mask=[[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    assert found[0] == found[1] != found[2]
    # A token more is another text, also the token 0.
    assert len(set(keys([[5, 0, 0]] * 3, mask=[[1, 0, 0], [1, 1, 0], [1, 1, 1]]))) == 3


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=2, max_size=40))
def test_keys_are_equal_exactly_where_rows_are(rows: list[list[int]]) -> None:
    assert len(set(keys(rows))) == len({tuple(row) for row in rows})


@pytest.mark.slow
def test_long_rows_that_differ_in_one_token_have_different_keys() -> None:
    row = torch.arange(4096) % 7
    rows = row.repeat(512, 1)
    rows[torch.arange(512), torch.arange(512) * 8] += 1
    assert len(set(keys(rows.tolist()))) == 512


def test_one_of_sixteen_is_0_and_sixteen_of_sixteen_are_1() -> None:
    assert distinct([7] * 16) == 0.0
    assert distinct([7] * 15 + [8]) == pytest.approx(1 / 15)
    assert distinct(list(range(16))) == 1.0


def test_groups_weigh_the_same_and_those_of_one_do_not_count() -> None:
    # 2 distinct of 3, 1 of 2, and one alone; the same text in two groups is no repetition.
    assert distinct([1, 1, 2, 1, 1, 1], groups=["a", "a", "a", "b", "b", "c"]) == pytest.approx((1 / 2 + 0) / 2)
    assert math.isnan(distinct([1, 2], groups=["a", "b"]))


def test_void_and_scripted_sessions_do_not_count() -> None:
    external = {"external": torch.tensor([0.0, 0.0, 1.0, math.nan])}
    assert distinct([1, 1, 2, 3], void=[3]) == pytest.approx(1 / 2)
    assert distinct([1, 1, 2, 3], void=[3], parts=external) == 0.0


def test_a_session_is_all_of_its_rows_in_their_order() -> None:
    sessions, order = ["s", "s", "t", "t"], [0, 1, 0, 1]
    assert distinct([1, 2, 1, 2], sessions=sessions, order=order) == 0.0
    assert distinct([1, 2, 2, 1], sessions=sessions, order=order) == 1.0
    assert distinct([1, 2, 1, 2], sessions=sessions, order=[0, 1, 1, 0]) == 1.0
    # A void row in the middle adds nothing.
    assert distinct([1, 9, 2, 1, 2], sessions=[*"sss", *"tt"], order=[0, 1, 2, 0, 1], void=[1]) == 0.0


def test_the_same_actions_in_the_same_order_are_the_same_session() -> None:
    assert by_actions(steps([[4, 5], [4, 5], [5, 4]])) == pytest.approx(1 / 2)
    assert by_actions(steps([[4, 5], [4, -1]])) == 1.0
    # Two rows of one session, and one row that holds both of its turns.
    of = steps([[4, -1], [5, -1], [4, 5]], first_turn=[0, 1, 0])
    assert by_actions(of, sessions=["s", "s", "t"], order=[0, 1, 0]) == 0.0


def test_what_is_not_known_is_left_out() -> None:
    assert diversity(make_batch([0.0, 1.0])) == {}
