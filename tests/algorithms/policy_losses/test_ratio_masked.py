"""Bands of ratios."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss
from verl_agentic.methods.policy_losses.ratio_masked import band_weights

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
ratio_masked = load_policy_loss("ratio_masked")


def test_band_weights_are_the_vector() -> None:
    weights = band_weights(torch.tensor([0.3, 1.0, 2.5, 8.0]), low=0.5, high=5.0)
    torch.testing.assert_close(weights, torch.tensor([0.0, 1.0, 2.5, 0.0]))


def test_tokens_with_an_extreme_update_are_left_out(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[5.0, -5.0, 0.1]], old_log_prob=[[0.0] * 3], advantages=[1.0])
    loss = ratio_masked(batch)
    loss_BT = cast("Tensor", loss.per_token_BT)
    torch.testing.assert_close(loss_BT, torch.tensor([[0.0, 0.0, -math.exp(0.1)]]))
    (found,) = torch.autograd.grad(loss_BT.sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, -math.exp(0.1)]]))
    assert loss.metrics["ratio_masked_frac"] == pytest.approx(2 / 3)


def test_icepop_weighs_with_the_ratio_of_trainer_and_rollout(loss_batch: Make) -> None:
    ratios = [0.3, 1.0, 2.5, 8.0]
    batch = loss_batch(
        log_prob=[[-1.0] * 4], advantages=[-2.0], rollout_log_prob_BT=[[-1.0 - math.log(ratio) for ratio in ratios]]
    )
    loss = ratio_masked(batch, of="rollout")
    torch.testing.assert_close(loss.per_token_BT, torch.tensor([[0.0, 2.0, 5.0, 0.0]]))
    assert loss.metrics["ratio_masked_frac"] == 0.5


def test_the_mismatch_of_trainer_and_rollout_does_not_change_with_the_update(loss_batch: Make) -> None:
    """pi / pi_old = 1.1, pi_old / pi_rollout = 4.9: inside the band, though pi / pi_rollout is not."""
    batch = loss_batch(
        log_prob=[[math.log(1.1)]], old_log_prob=[[0.0]], advantages=[1.0], rollout_log_prob_BT=[[-math.log(4.9)]]
    )
    torch.testing.assert_close(ratio_masked(batch, of="rollout").per_token_BT, torch.tensor([[-1.1 * 4.9]]))


def test_what_cannot_work_is_refused(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-1.0]])
    with pytest.raises(ConfigError, match="low=2"):
        ratio_masked(batch, low=2.0, high=1.0)
    with pytest.raises(ConfigError, match=r"rollout\.calculate_log_probs"):
        ratio_masked(batch, of="rollout")
    with pytest.raises(ConfigError, match="'sequence'"):
        ratio_masked(batch, of="sequence")
