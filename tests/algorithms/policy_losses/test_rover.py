"""The log-ratio as a Q-value."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch

from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss
from verl_agentic.methods.policy_losses.rover import at_next_sampled

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
rover = load_policy_loss("rover")


def test_the_loss_is_the_vector(loss_batch: Make) -> None:
    """Rewards 1, 0, 0, 1 centred; q = .1, next mean -.02: the first target .48, its loss .38^2 = .1444."""
    batch = loss_batch(
        log_prob=[[-0.9, -1.0]] * 4,
        old_log_prob=[[-1.0, -1.0]] * 4,
        advantages=[0.5, -0.5, -0.5, 0.5],
        mean_log_ratio_BT=[[7.0, -0.02]] * 4,
    )
    loss = rover(batch)
    loss_BT = cast("Tensor", loss.per_token_BT).detach()
    assert float(loss_BT[0, 0]) == pytest.approx(0.1444, abs=1e-6)
    assert float(loss_BT[1, 0]) == pytest.approx((0.1 + 0.52) ** 2, abs=1e-6)
    assert float(loss_BT[0, 1]) == pytest.approx(0.25)  # nothing after the last token
    assert loss.metrics == pytest.approx({"rover_q": 0.05, "rover_target": -0.01})


def test_the_target_has_no_gradient(loss_batch: Make) -> None:
    mean_BT = torch.tensor([[0.0, -0.02]], requires_grad=True)
    batch = loss_batch(
        log_prob=[[-0.9, -1.0]], old_log_prob=[[-1.0, -1.0]], advantages=[0.5], mean_log_ratio_BT=mean_BT
    )
    cast("Tensor", rover(batch).per_token_BT).sum().backward()
    assert mean_BT.grad is None
    torch.testing.assert_close(batch.log_prob_BT.grad, torch.tensor([[2 * (0.1 - 0.48), 2 * (0.0 - 0.5)]]))


def test_the_next_state_is_where_the_policy_speaks_next() -> None:
    values_BT = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] * 3)
    mask_BT = torch.tensor([[1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
    expected = [[2.0, 5.0, 5.0, 5.0, 0.0, 0.0], [3.0, 3.0, 4.0, 5.0, 6.0, 0.0], [0.0] * 6]
    assert torch.equal(at_next_sampled(values_BT, mask_BT), torch.tensor(expected))


def test_bootstrap_scales_the_next_state(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-1.0, -1.0]], advantages=[0.0], mean_log_ratio_BT=[[0.0, 0.5]])
    torch.testing.assert_close(rover(batch, bootstrap=0.4).per_token_BT, torch.tensor([[0.04, 0.0]]))
