"""Advantage times entropy as token weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch

from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
advantage_entropy, entropy_weighted = load_policy_loss("advantage_entropy"), load_policy_loss("entropy_weighted")


def test_both_signs_count(loss_batch: Callable[..., LossBatch]) -> None:
    """A = 1, -1, 1 and H = .5, 2, 1: weights .5, 2, 1 over their mean 3.5 / 3; on policy the loss is -A w."""
    batch = loss_batch(log_prob=[[-1.0] * 3], advantages=[[1.0, -1.0, 1.0]], entropy_BT=[[0.5, 2.0, 1.0]])
    expected = torch.tensor([[-0.5, 2.0, -1.0]]) / (3.5 / 3)
    torch.testing.assert_close(advantage_entropy(batch).per_token_BT, expected)


def test_weights_have_mean_one_over_sampled_tokens(loss_batch: Callable[..., LossBatch]) -> None:
    mask, advantages = [[1, 0, 1, 1]], [[3.0, 9.0, -0.5, 1.0]]
    batch = loss_batch(log_prob=[[-1.0] * 4], mask=mask, advantages=advantages, entropy_BT=[[1.0, 9.0, 2.0, 0.1]])
    weights_BT = -cast("Tensor", advantage_entropy(batch).per_token_BT) / torch.tensor(advantages)
    torch.testing.assert_close(weights_BT.sum(), torch.tensor(3.0))
    torch.testing.assert_close(weights_BT, 3 * torch.tensor([[3.0, 0.0, 1.0, 0.1]]) / 4.1)


def test_with_one_advantage_per_row_it_is_entropy_weighted(loss_batch: Callable[..., LossBatch]) -> None:
    batch = loss_batch(log_prob=[[-1.0] * 3] * 2, advantages=[0.3, -2.0], entropy_BT=[[0.5, 2.0, 1.0], [0.1, 0.2, 0.3]])
    torch.testing.assert_close(advantage_entropy(batch).per_token_BT, entropy_weighted(batch).per_token_BT)
