"""Prefixes that branches share."""

from __future__ import annotations

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.advantages.arpo import arpo

A, B = 0.499999, -1.499997
PREFIX = [7, 7, -1, -1]
NONE = [-1, -1, -1, -1]


def branches(shared: list[list[int]], **options: object) -> CreditBatch:
    outcomes = {"outcomes": [1.0, 0.0, 1.0, 1.0], "tokens": 4, **options}
    return make_batch(**outcomes, shared_BT=torch.tensor(shared))  # pyright: ignore[reportArgumentType]


def test_a_shared_prefix_gets_the_mean_of_its_branches() -> None:
    advantages = arpo(branches([PREFIX, PREFIX, PREFIX, NONE])).advantages_BT
    own = [[A] * 2, [B] * 2, [A] * 2]
    for row, want in zip(advantages[:3].tolist(), own, strict=True):
        assert row == pytest.approx([-0.166666, -0.166666, *want], abs=2e-6)
    assert advantages[3].tolist() == pytest.approx([A] * 4, abs=2e-6)


def test_hard_and_soft_say_the_same_of_all_copies_together() -> None:
    batch = branches([PREFIX, PREFIX, PREFIX, NONE])
    hard, soft = (arpo(batch, mode=mode).advantages_BT for mode in ("hard", "soft"))
    for values in (hard, soft):
        assert values[:3, 0].sum().item() == pytest.approx(-0.499999, abs=2e-6)
    assert soft[:, 0].tolist() == pytest.approx([A, B, A, A], abs=2e-6)
    torch.testing.assert_close(hard.sum(dim=0), soft.sum(dim=0))


def test_branches_of_branches_share_what_each_has_in_common() -> None:
    # All three share two tokens; the first two share a third one.
    batch = branches([[5, 5, 6, -1], [5, 5, 6, -1], [5, 5, -1, -1], NONE])
    advantages = arpo(batch, base="dr_grpo").advantages_BT
    assert advantages[0].tolist() == pytest.approx([-1 / 12, -1 / 12, -0.25, 0.25])
    assert advantages[1].tolist() == pytest.approx([-1 / 12, -1 / 12, -0.25, -0.75])
    assert advantages[2].tolist() == pytest.approx([-1 / 12, -1 / 12, 0.25, 0.25])


def test_the_same_id_at_another_place_is_another_token() -> None:
    batch = branches([[3, -1, -1, -1], [-1, 3, -1, -1], NONE, NONE])
    torch.testing.assert_close(arpo(batch).advantages_BT, arpo(batch, mode="soft").advantages_BT)


def test_the_same_id_of_another_group_is_another_token() -> None:
    # Of each group, two of three share.
    outcomes, groups = [3.0, 0.0, 0.0, 6.0, 0.0, 0.0], ["g", "g", "g", "h", "h", "h"]
    batch = branches([PREFIX, PREFIX, NONE, PREFIX, PREFIX, NONE], groups=groups, outcomes=outcomes)
    advantages = arpo(batch, base="dr_grpo").advantages_BT
    assert advantages[:, 0].tolist() == [0.5, 0.5, -1.0, 1.0, 1.0, -2.0]


def test_a_branch_that_was_taken_out_has_no_vote() -> None:
    batch = branches([PREFIX, PREFIX, PREFIX, NONE], outcomes=[1.0, float("nan"), 0.0, 0.0])
    advantages = arpo(batch, base="dr_grpo").advantages_BT
    # 2/3, none and -1/3
    assert advantages[:, 0].tolist() == pytest.approx([1 / 6, 0.0, 1 / 6, -1 / 3])


def test_a_branch_counts_where_it_is_trained() -> None:
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
    advantages = arpo(branches([PREFIX, PREFIX, PREFIX, NONE], mask=mask), base="dr_grpo").advantages_BT
    assert advantages[:, 0].tolist() == pytest.approx([0.25, 0.0, 0.25, 0.25])
    assert advantages[:, 1].tolist() == pytest.approx([-1 / 12, -1 / 12, -1 / 12, 0.25])
