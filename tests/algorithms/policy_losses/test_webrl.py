"""The log-ratio of a turn to the reference, regressed on its advantage."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Make = Callable[..., LossBatch]
webrl = load_policy_loss("webrl")


def test_the_loss_is_the_squared_distance_of_each_turn(loss_batch: Make) -> None:
    """Turn 0: beta (0.4 + 0.6) = 0.5, A = 1; an observation; turn 1: beta * -0.2 = -0.1, A = -0.5."""
    batch = loss_batch(
        log_prob=[[-1.0, -1.0, -7.0, -1.0]],
        ref_log_prob_BT=[[-1.4, -1.6, -1.0, -0.8]],
        advantages=[[1.0, 1.0, 9.0, -0.5]],
        mask=[[1, 1, 0, 1]],
        turn_ids_BT=[[0, 0, 0, 1]],
    )
    loss = webrl(batch, beta=0.5)
    loss_B = cast("torch.Tensor", loss.per_row_B)
    assert loss_B.tolist() == pytest.approx([(0.5**2 + 0.4**2) / 2])
    assert loss.metrics == pytest.approx({"webrl_q": 0.2})
    loss_B.sum().backward()
    # 2 beta (q - A) over two turns, on each sampled token of the turn.
    expected = torch.tensor([[-0.25, -0.25, 0.0, 0.2]])
    torch.testing.assert_close(batch.log_prob_BT.grad, expected)


def test_the_minimum_is_the_reference_tilted_by_the_advantage(loss_batch: Make) -> None:
    """Turn ids of a later row of a session do not begin with 0."""
    beta, advantage = 0.5, 0.3
    batch = loss_batch(
        log_prob=[[-1.0 + advantage / beta, -2.0]],
        ref_log_prob_BT=[[-1.0, -2.0]],
        advantages=[[advantage, 0.0]],
        turn_ids_BT=[[4, 9]],
    )
    assert cast("torch.Tensor", webrl(batch, beta=beta).per_row_B).tolist() == pytest.approx([0.0], abs=1e-12)


def test_a_beta_that_is_not_positive_is_refused(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-1.0]], ref_log_prob_BT=[[-1.0]], turn_ids_BT=[[0]])
    with pytest.raises(ConfigError, match="beta"):
        webrl(batch, beta=0.0)
