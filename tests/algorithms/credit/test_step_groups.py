"""Turns of sessions, groups of steps, and what all estimators on them have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from batches import any_rows, make_batch
from hypothesis import given
from hypothesis import strategies as st
from turn_batches import key, turn_batch

from verl_agentic.base.errors import DataError
from verl_agentic.credit.advantage import AdvantageType
from verl_agentic.credit.advantages.gigpo import gigpo
from verl_agentic.credit.credit.batch import Steps
from verl_agentic.credit.credit.step_groups import (
    END,
    SessionTurns,
    StepList,
    at_steps,
    joint_ids,
    session_advantages,
    steps_of,
)
from verl_agentic.methods.advantages.arpo import arpo
from verl_agentic.methods.advantages.per_use import per_use
from verl_agentic.methods.advantages.salt import salt
from verl_agentic.methods.advantages.spa import spa
from verl_agentic.methods.advantages.turn_group import turn_group

BIG = 2**63 - 1
ESTIMATORS: list[tuple[AdvantageType, dict[str, Any]]] = [
    (turn_group, {}),
    (turn_group, {"norm": "mean_std", "gamma": 0.9}),
    (spa, {"norm": "none"}),
    (salt, {}),
    (salt, {"base": "rloo", "history": 2}),
    (gigpo, {}),
    (gigpo, {"norm": "mean_std"}),
    (arpo, {}),
    (per_use, {"clip": 1.0}),
]
each = pytest.mark.parametrize(("estimator", "options"), ESTIMATORS, ids=lambda item: getattr(item, "name", str(item)))


def test_steps_stand_by_turn() -> None:
    steps = steps_of([[(0, 5, BIG), (1, 6, 11)], [], [(3, 7, 12), (5, 0, 13)]])
    assert steps.state_BK.tolist() == [[5, 6, -1], [-1, -1, -1], [7, -1, 0]]
    assert steps.action_BK.tolist() == [[BIG, 11, -1], [-1, -1, -1], [12, -1, 13]]
    assert steps.first_turn_B.tolist() == [0, 0, 3]


def test_rows_without_any_step_have_none() -> None:
    assert steps_of([[], []]).state_BK.tolist() == [[-1], [-1]]


@pytest.mark.parametrize("row", [[(0, 1, 1), (0, 2, 2)], [(0, -1, 1)]])
def test_steps_that_cannot_be_told_apart_are_refused(row: list[tuple[int, int, int]]) -> None:
    with pytest.raises(DataError, match="one step a turn"):
        steps_of([row])


def test_joint_ids_are_equal_where_all_columns_are_and_keep_their_order() -> None:
    first, second = torch.tensor([BIG, 3, 3, BIG, -2]), torch.tensor([0, BIG, 1, 0, 9])
    assert joint_ids(first, second).tolist() == [3, 2, 1, 3, 0]


def test_sessions_count_once_however_many_rows_they_have() -> None:
    # Session a has three rows and earns 1, b one row and earns 0: the mean is .5, not .75.
    batch = make_batch([0.0, 0.0, 1.0, 0.0], sessions=["a", "a", "a", "b"], order=[0, 1, 2, 0])
    assert session_advantages(batch, base="dr_grpo").tolist() == [0.5, -0.5]
    assert session_advantages(batch, base="grpo").tolist() == pytest.approx([0.707106, -0.707106])
    assert session_advantages(batch, base="rloo").tolist() == [1.0, -1.0]


def test_void_sessions_do_not_move_the_mean() -> None:
    batch = make_batch([1.0, 1.0, 0.0, 0.0], void=[1])
    assert session_advantages(batch, base="dr_grpo").tolist() == pytest.approx([2 / 3, 0.0, -1 / 3, -1 / 3], abs=1e-6)


def test_turns_of_a_session_lie_in_several_rows() -> None:
    batch = turn_batch([[1, 2], [4], [8]], sessions=["a", "a", "b"], first_turns=[0, 2, 0])
    played = SessionTurns.of(batch)
    assert played.rewards_SK.tolist() == [[1, 2, 4], [8, 0, 0]]
    assert played.exists_SK.tolist() == [[True, True, True], [True, False, False]]
    assert played.returns_to_go(gamma=0.5).tolist() == [[3, 4, 4], [8, 0, 0]]


def test_steps_know_their_neighbours_over_the_rows_of_a_session() -> None:
    batch = turn_batch(
        [[0], [0, 0], [0]], states=[["c"], ["a", "b"], ["d"]], sessions=["x", "x", "y"], first_turns=[2, 0, 0]
    )
    steps = StepList.of(batch)
    # As they stand: c of the second row of x, a and b of its first row, d of y.
    assert steps.after_N.tolist() == [-1, 2, 0, -1]
    assert steps.before_N.tolist() == [2, -1, 1, -1]
    assert at_steps(torch.tensor([10, 11, 12, 13]), steps.after_N, default=END).tolist() == [END, 12, 10, END]


@pytest.mark.sample(2, slow=2)
@each
@given(data=st.data())
def test_the_order_of_rows_does_not_matter(
    estimator: AdvantageType, options: dict[str, Any], data: st.DataObject
) -> None:
    # With a history, rows of one session that claim the same turns would have several pasts.
    rows = data.draw(any_rows(needs=estimator.needs, several_rows="history" not in options, dense=True))
    places = data.draw(st.permutations(range(len(rows.groups))))
    expected = estimator(rows.batch(), **options).advantages_BT[list(places)]
    torch.testing.assert_close(estimator(rows.permuted(places).batch(), **options).advantages_BT, expected)


@pytest.mark.sample(4)
@each
@given(data=st.data())
def test_what_stands_at_masked_tokens_does_not_matter(
    estimator: AdvantageType, options: dict[str, Any], data: st.DataObject
) -> None:
    rows = data.draw(any_rows(needs=estimator.needs, dense=True))
    expected = estimator(rows.batch(), **options).advantages_BT
    assert torch.equal(estimator(rows.with_garbage().batch(), **options).advantages_BT, expected)
    assert torch.equal(expected, torch.where(rows.mask.bool(), expected, 0.0))


@pytest.mark.sample(3)
@pytest.mark.parametrize(("estimator", "options"), [(turn_group, {}), (salt, {}), (gigpo, {"gamma": 1.0}), (arpo, {})])
@given(data=st.data(), shift=st.integers(-8, 8))
def test_what_all_outcomes_have_in_common_does_not_matter(
    estimator: AdvantageType, options: dict[str, Any], data: st.DataObject, shift: int
) -> None:
    rows = data.draw(any_rows(needs=estimator.needs, several_rows=False))
    expected = estimator(rows.batch(), **options).advantages_BT
    last = torch.where(rows.mask.bool(), torch.arange(rows.mask.shape[1]), -1).amax(dim=1)
    rewards = rows.rewards.clone()
    rewards[torch.arange(len(rewards)), last.clamp(min=0)] += shift
    shifted = type(rows)(**{**vars(rows), "rewards": rewards * rows.mask})
    torch.testing.assert_close(estimator(shifted.batch(), **options).advantages_BT, expected, atol=1e-4, rtol=1e-4)


@given(rows=any_rows(needs=("turn_ids_BT",), several_rows=False, void=False, dense=True))
def test_first_turns_of_a_group_sum_to_zero(rows: Any) -> None:
    batch = rows.batch()
    advantages = turn_group(batch).advantages_BT
    first = advantages.gather(1, batch.mask_BT.long().argmax(dim=1, keepdim=True)).squeeze(1)
    sums = torch.zeros(batch.num_groups).index_add(0, batch.group_B, first)
    torch.testing.assert_close(sums, torch.zeros_like(sums), atol=1e-4, rtol=0)


@each
def test_a_batch_of_void_rows_has_no_advantages(estimator: AdvantageType, options: dict[str, Any]) -> None:
    states = [["s", "t"], ["s", "t"]]
    batch = turn_batch(
        [[0, 1.0], [0, 0.0]],
        states=states,
        void=[0, 1],
        shared_BT=torch.full((2, 6), -1),
        uses_B=torch.ones(2, dtype=torch.int64),
    )
    assert estimator(batch, **options).advantages_BT.tolist() == [[0.0] * 6] * 2


@each
def test_a_session_whose_reward_is_not_finite_neither_counts_nor_learns(
    estimator: AdvantageType, options: dict[str, Any]
) -> None:
    known: dict[str, Any] = {"shared_BT": torch.full((3, 6), -1), "uses_B": torch.ones(3, dtype=torch.int64)}
    rows, states, actions = [[0, 1.0], [0, float("nan")], [0, 0.5]], [["s", "t"]] * 3, [["a", "b"]] * 3
    given_out = turn_batch(rows, states=states, actions=actions, **known)
    void = turn_batch(rows, states=states, actions=actions, void=[1], **known)
    assert given_out.num_nonfinite == 1 and bool(given_out.mask_BT[1].any())
    assert torch.equal(estimator(given_out, **options).advantages_BT, estimator(void, **options).advantages_BT)


@pytest.mark.parametrize("estimator", [salt, gigpo], ids=lambda item: item.name)
def test_turns_beyond_the_known_steps_have_none(estimator: AdvantageType) -> None:
    batch = turn_batch([[0, 0, 1.0], [0, 0, 0]], states=[["s", "t", "u"]] * 2, actions=[["a", "b", "c"]] * 2)
    full = batch.steps
    assert full is not None
    narrow = Steps(state_BK=full.state_BK[:, :1], action_BK=full.action_BK[:, :1], first_turn_B=full.first_turn_B)
    advantages = estimator(replace(batch, steps=narrow)).advantages_BT
    # Turns 1 and 2 get what the session has.
    assert torch.equal(advantages[:, 3], advantages[:, 6]) and bool((advantages[:, 0] != advantages[:, 3]).all())


@pytest.mark.parametrize("estimator", [turn_group, spa, salt, gigpo], ids=lambda item: item.name)
def test_a_row_that_was_taken_out_of_a_session_learns_nothing(estimator: AdvantageType) -> None:
    states = [["s", "t"], ["u"], ["s", "t", "v"]]
    batch = turn_batch([[0, 0], [1.0], [0, 0, 0]], states=states, sessions=["a", "a", "b"], first_turns=[0, 2, 0])
    batch.valid_B[0] = False
    advantages = estimator(batch).advantages_BT
    assert not advantages[0].any() and bool(advantages[1].any())


def test_what_comes_next_does_not_depend_on_the_place_of_rows() -> None:
    # Two rows claim turn 1: the one with the lesser state comes next, wherever it stands.
    for states in (["b", "c"], ["c", "b"]):
        batch = turn_batch(
            [[0], [0], [0]], states=[["a"], *([name] for name in states)], sessions=["x"] * 3, first_turns=[0, 1, 1]
        )
        steps = StepList.of(batch)
        assert int(steps.state_N[steps.after_N[0]]) == min(key("b"), key("c"))
