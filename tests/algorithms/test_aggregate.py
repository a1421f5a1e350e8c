"""Masked reductions."""

from __future__ import annotations

import pytest
import torch

from verl_agentic.credit.aggregate import as_floats, masked, row_means, row_sums, token_mean, weights_of_mean_one

VALUES = torch.tensor([[1.0, 2.0, float("nan")], [4.0, float("inf"), -1e30], [float("nan")] * 3])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()


def test_masked_values_are_exactly_zero() -> None:
    assert torch.equal(masked(VALUES, MASK), torch.tensor([[1.0, 2.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))


def test_reductions_count_sampled_tokens_only() -> None:
    assert torch.equal(row_sums(VALUES, MASK), torch.tensor([3.0, 4.0, 0.0]))
    assert torch.equal(row_means(VALUES, MASK), torch.tensor([1.5, 4.0, 0.0]))
    assert float(token_mean(VALUES, MASK)) == pytest.approx(7 / 3)


def test_without_sampled_tokens_a_mean_is_zero() -> None:
    assert float(token_mean(VALUES, torch.zeros_like(MASK))) == 0.0


def test_a_sum_of_bfloat16_is_taken_in_float32() -> None:
    ones = torch.ones(1, 1000, dtype=torch.bfloat16)
    assert float(row_sums(ones, torch.ones(1, 1000, dtype=torch.bool))) == 1000.0


def test_weights_have_mean_one_in_every_row() -> None:
    scores = torch.tensor([[1.0, 3.0, 9.0], [0.0, 0.0, 5.0], [2.0, 2.0, 2.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]]).bool()
    expected = torch.tensor([[0.5, 1.5, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert torch.equal(weights_of_mean_one(scores, mask), expected)


def test_the_constant_normaliser_of_dr_grpo_does_not_favour_long_rows() -> None:
    """V-DRGRPO-L: lengths 2 and 4, A = .5 and -.5, on policy; per row 1 / length against one constant, 8."""
    mask_BT = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    log_prob_BT = torch.full((2, 4), -1.0, requires_grad=True)
    ratio_BT = (log_prob_BT - log_prob_BT.detach()).exp()
    loss_BT = -ratio_BT * torch.tensor([[0.5], [-0.5]])
    grpo, dr_grpo = row_means(loss_BT, mask_BT).mean(), row_sums(loss_BT, mask_BT).mean() / 8
    assert float(grpo.detach()) == 0.0
    assert float(dr_grpo.detach()) == pytest.approx(0.0625)
    (per_length,) = torch.autograd.grad(grpo, log_prob_BT, retain_graph=True)
    (constant,) = torch.autograd.grad(dr_grpo, log_prob_BT)
    assert per_length[:, 0].tolist() == [-0.125, 0.0625]
    assert constant[:, 0].tolist() == [-0.03125, 0.03125]


def test_numbers_keep_their_names() -> None:
    assert as_floats({"a": torch.tensor(1.5), "b": torch.tensor(True)}) == {"a": 1.5, "b": 1.0}
