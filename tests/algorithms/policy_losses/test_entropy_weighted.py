"""Entropy as token weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.aggregate import weights_of_mean_one
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
entropy_weighted, masked_ppo = load_policy_loss("entropy_weighted"), load_policy_loss("masked_ppo")


def test_weights_are_the_vector() -> None:
    weights_BT = weights_of_mean_one(torch.tensor([[0.1, 1.0, 2.0, 0.5]]), torch.tensor([[1, 1, 0, 1]]).bool())
    torch.testing.assert_close(weights_BT, torch.tensor([[0.1875, 1.875, 0.0, 0.9375]]))


def test_the_loss_is_ppo_times_the_weight_and_keeps_the_rows_own_mean(loss_batch: Callable[..., LossBatch]) -> None:
    batch = loss_batch(
        log_prob=[[-1.0] * 4] * 2,
        mask=[[1, 1, 0, 1], [1, 1, 1, 1]],
        advantages=[1.0, -2.0],
        entropy_BT=[[0.1, 1.0, 2.0, 0.5], [3.0, 3.0, 3.0, 3.0]],
    )
    # On policy the loss of a token is -A; in the second row all entropies are equal, however great.
    expected = [[-0.1875, -1.875, 0.0, -0.9375], [2.0, 2.0, 2.0, 2.0]]
    torch.testing.assert_close(entropy_weighted(batch).per_token_BT, torch.tensor(expected))


def test_weights_have_no_gradient(loss_batch: Callable[..., LossBatch]) -> None:
    entropy_BT = torch.tensor([[0.5, 1.5]], requires_grad=True)
    batch = loss_batch(log_prob=[[-1.0, -1.0]], advantages=[1.0], entropy_BT=entropy_BT)
    cast("Tensor", entropy_weighted(batch).per_token_BT).sum().backward()
    assert entropy_BT.grad is None
    torch.testing.assert_close(batch.log_prob_BT.grad, torch.tensor([[-0.5, -1.5]]))


def test_a_row_without_entropy_is_plain_ppo(loss_batch: Callable[..., LossBatch]) -> None:
    batch = loss_batch(log_prob=[[-1.0, -1.0]], mask=[[1, 0]], advantages=[1.0], entropy_BT=[[0.0, 0.0]])
    assert torch.equal(
        cast("Tensor", entropy_weighted(batch).per_token_BT), cast("Tensor", masked_ppo(batch).per_token_BT)
    )


def test_without_entropy_it_says_how_to_get_it(loss_batch: Callable[..., LossBatch]) -> None:
    with pytest.raises(ConfigError, match=r"actor\.calculate_entropy"):
        entropy_weighted(loss_batch(log_prob=[[-1.0]]))
