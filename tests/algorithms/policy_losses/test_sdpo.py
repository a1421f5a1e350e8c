"""Self-distillation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
sdpo = load_policy_loss("sdpo")


def test_the_gradient_is_minus_the_vectors_reward(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-0.9, -0.6]], teacher_log_prob_BT=[[-0.2, -1.5]])
    loss = sdpo(batch)
    loss_BT = cast("Tensor", loss.per_token_BT)
    torch.testing.assert_close(loss_BT, torch.tensor([[-0.7 * -0.9, 0.9 * -0.6]]))
    (found,) = torch.autograd.grad(loss_BT.sum(), batch.log_prob_BT)
    torch.testing.assert_close(-found, torch.tensor([[0.7, -0.9]]))
    assert loss.metrics == pytest.approx({"sdpo_reward": -0.1, "sdpo_teacher_frac": 1.0})


def test_importance_weights_are_bounded_above(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[-1.0] * 3],
        old_log_prob=[[-1.0 - math.log(ratio) for ratio in (0.5, 1.5, 8.0)]],
        teacher_log_prob_BT=[[-2.0] * 3],
    )
    (found,) = torch.autograd.grad(cast("Tensor", sdpo(batch).per_token_BT).sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, torch.tensor([[0.5, 1.5, 2.0]]))


def test_where_there_was_no_feedback_nothing_is_learned(loss_batch: Make) -> None:
    nan = float("nan")
    batch = loss_batch(
        log_prob=[[-0.9, -0.6], [-0.9, -0.6]], mask=[[1, 1], [1, 0]], teacher_log_prob_BT=[[-0.2, -1.5], [nan, nan]]
    )
    loss = sdpo(batch)
    (found,) = torch.autograd.grad(cast("Tensor", loss.per_token_BT).sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, torch.tensor([[-0.7, 0.9], [0.0, 0.0]]))
    assert loss.metrics["sdpo_teacher_frac"] == pytest.approx(2 / 3)


def test_a_bound_that_is_not_positive_is_refused(loss_batch: Make) -> None:
    with pytest.raises(ConfigError, match="is_clip"):
        sdpo(loss_batch(log_prob=[[-1.0]], teacher_log_prob_BT=[[-1.0]]), is_clip=0)
