"""A language model read as a reward model."""

from __future__ import annotations

import math

import pytest
import torch

from verl_agentic.algorithms.implicit_reward import implicit_rewards, outcome_loss


def test_rewards_are_the_vector() -> None:
    rewards_BT = implicit_rewards(
        torch.tensor([[-0.5, -1.0, -0.2]]), torch.tensor([[-0.7, -0.8, -0.2]]), torch.ones(1, 3, dtype=torch.bool)
    )
    torch.testing.assert_close(rewards_BT, torch.tensor([[0.01, -0.01, 0.0]]))


def test_masked_tokens_have_no_influence() -> None:
    phi_BT = torch.tensor([[-0.5, float("nan")]], requires_grad=True)
    mask_BT = torch.tensor([[True, False]])
    rewards_BT = implicit_rewards(phi_BT, torch.tensor([[-0.7, float("inf")]]), mask_BT)
    torch.testing.assert_close(rewards_BT, torch.tensor([[0.01, 0.0]]))
    (slope,) = torch.autograd.grad(outcome_loss(rewards_BT, torch.tensor([1.0]), mask_BT).sum(), phi_BT)
    assert float(slope[0, 1]) == 0.0 and float(slope[0, 0]) < 0.0


def test_the_loss_is_the_cross_entropy_of_the_sum() -> None:
    rewards_BT, mask_BT = torch.tensor([[1.0, 1.0, 7.0]] * 3), torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]]).bool()
    loss_B = outcome_loss(rewards_BT, torch.tensor([1.0, 0.25, 1.0]), mask_BT)
    right, wrong = math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))
    assert loss_B.tolist() == pytest.approx([right, 0.25 * right + 0.75 * wrong, 0.0])


def test_the_loss_stays_finite_where_a_sigmoid_would_not() -> None:
    loss_B = outcome_loss(torch.tensor([[500.0]]), torch.tensor([0.0]), torch.ones(1, 1, dtype=torch.bool))
    assert float(loss_B) == 500.0
