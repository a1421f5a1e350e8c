from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch

from verl_agentic.base.errors import DataError
from verl_agentic.credit.credit.batch import CreditBatch, last_valid_rows, masked, row_blocks

ONES = torch.ones(3, 2).long()


def test_rewards_lie_on_sampled_tokens_alone_whatever_stands_elsewhere() -> None:
    rewards = torch.tensor([[1.0, math.nan], [2.0, 1e30], [math.inf, 3.0]])
    mask = torch.tensor([[1, 0], [1, 0], [0, 1]])
    batch = CreditBatch.of(rewards=rewards, mask=mask, groups="aab")
    assert batch.rewards_BT.tolist() == [[1, 0], [2, 0], [0, 3]]
    assert batch.num_nonfinite == 0 and batch.valid_B.all()


def test_clean_rewards_are_not_copied() -> None:
    rewards = torch.tensor([[1.0, 0.0]])
    batch = CreditBatch.of(rewards=rewards, mask=torch.tensor([[1, 0]]), groups="a")
    assert batch.rewards_BT.data_ptr() == rewards.data_ptr()


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (700, 1_024), (2, 600_000)])
def test_blocks_are_all_rows_once(shape) -> None:
    values_BT = torch.zeros(shape)
    rows = [row for block in row_blocks(values_BT) for row in range(shape[0])[block]]
    assert rows == list(range(shape[0]))


def test_masking_sees_every_block() -> None:
    mask_BT = torch.ones(700, 1_024).bool()
    mask_BT[-1, -1] = False
    values_BT = torch.zeros(700, 1_024)
    assert masked(values_BT, mask_BT) is values_BT
    values_BT[-1, -1] = -0.5
    assert masked(values_BT, mask_BT).count_nonzero() == 0


def test_rewards_of_any_float_type_are_computed_in_float32() -> None:
    batch = make_batch([1.0, 0.3], dtype=torch.bfloat16)
    assert batch.rewards_BT.dtype == torch.float32
    assert batch.outcomes_S.tolist() == [1.0, pytest.approx(0.3, rel=1e-2)]


def test_the_outcome_of_a_session_is_what_all_of_its_rows_earned() -> None:
    batch = make_batch([0.25, 1.0, 0.5], sessions=["s", "t", "s"], order=[1, 0, 0])
    assert (batch.num_sessions, batch.num_groups) == (2, 1)
    assert batch.outcomes_S.tolist() == [0.75, 1.0]
    assert last_valid_rows(batch).tolist() == [0, 1]
    assert batch.per_session(torch.tensor([3, 4, 3])).tolist() == [3, 4]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_session_with_a_reward_that_is_not_finite_is_taken_out_whole(bad) -> None:
    rewards = torch.tensor([[bad, 0.0], [0.0, 1.0], [0.0, 0.5]])
    batch = CreditBatch.of(rewards=rewards, mask=ONES, groups="aaa", sessions="sst", order=[0, 1, 0])
    assert batch.num_nonfinite == 1
    assert batch.valid_B.tolist() == [False, False, True]
    assert batch.valid_S.tolist() == [False, True]
    assert batch.outcomes_S.tolist() == [0.0, 0.5]
    assert batch.to_tokens(torch.tensor([7.0, 3.0])).tolist() == [[0, 0], [0, 0], [3, 3]]


def test_a_session_is_valid_as_long_as_one_row_is() -> None:
    batch = make_batch([1.0, 0.5, 0.0], sessions=["s", "s", "t"], order=[0, 1, 0], void=[1, 2])
    assert batch.valid_B.tolist() == [True, False, False]
    assert batch.valid_S.tolist() == [True, False]
    assert batch.outcomes_S.tolist() == [1.0, 0.0]


def test_values_of_sessions_come_to_the_sampled_tokens_of_valid_rows() -> None:
    mask = torch.tensor([[1, 0], [0, 0], [1, 1]])
    batch = make_batch([0, 0, 0], sessions=["s", "s", "t"], order=[0, 1, 0], mask=mask)
    assert batch.to_tokens(torch.tensor([2.0, 3.0])).tolist() == [[2, 0], [0, 0], [3, 3]]
    assert batch.to_tokens(torch.tensor([math.nan, 3.0]))[1:].tolist() == [[0, 0], [3, 3]]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"\(3, 2\), \(3, 3\) and 3"):
        CreditBatch.of(rewards=torch.zeros(3, 2), mask=torch.ones(3, 3), groups="aaa")
    with pytest.raises(DataError, match="2 for 3 rows"):
        CreditBatch.of(rewards=torch.zeros(3, 2), mask=ONES, groups="aaa", sessions="st")


def test_a_session_in_two_groups_is_refused() -> None:
    with pytest.raises(DataError, match="one group"):
        CreditBatch.of(rewards=torch.zeros(3, 2), mask=ONES, groups="aab", sessions="sss", order=[0, 1, 2])


def test_a_batch_may_be_empty() -> None:
    batch = CreditBatch.of(rewards=torch.zeros(0, 4), mask=torch.zeros(0, 4).long(), groups=[])
    assert (batch.num_groups, batch.num_sessions) == (0, 0)
    assert batch.to_tokens(batch.outcomes_S).shape == (0, 4)
