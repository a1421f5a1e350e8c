"""PPO on the probability of whole rows."""

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
sequence_ppo, masked_ppo = load_policy_loss("sequence_ppo"), load_policy_loss("masked_ppo")

LOG_RATIO = [0.1, 0.4, 9.9, -0.1, 0.2]
MASK = [1, 1, 0, 1, 1]
REF_MINUS_LOG_PROB = [0.05, -0.1, 7.0, 0.0, 0.1]


@pytest.fixture
def vector(loss_batch: Make) -> LossBatch:
    """V-GRPO-SEQ with an observation in the middle."""
    return loss_batch(
        log_prob=[LOG_RATIO], old_log_prob=[[0.0] * 5], mask=[MASK], advantages=[1.0],
        ref_log_prob_BT=[[a + b for a, b in zip(LOG_RATIO, REF_MINUS_LOG_PROB, strict=True)]],
    )  # fmt: skip


def test_the_ratio_is_the_product_of_the_tokens_ratios(loss_batch: Make) -> None:
    wide = {"clip_low": 0.9, "clip_high": 0.9}
    batch = loss_batch(log_prob=[LOG_RATIO], old_log_prob=[[0.0] * 5], mask=[MASK], advantages=[1.0], **wide)
    assert float(cast("Tensor", sequence_ppo(batch).per_row_B).detach()) == pytest.approx(-1.822119, abs=1e-6)


def test_the_clipped_objective_is_the_vector(vector: LossBatch) -> None:
    loss = sequence_ppo(vector)
    assert float(cast("Tensor", loss.per_row_B).detach()) == pytest.approx(-1.2)
    assert loss.metrics["pg_clipfrac"] == 1.0
    per_token_BT = cast("Tensor", masked_ppo(vector).per_token_BT).detach()
    # In the token form only the second token is clipped: (1.105171 + 1.2 + .904837 + 1.2) / 4.
    assert float(per_token_BT.sum() / 4) == pytest.approx(-1.102502, abs=1e-6)


def test_the_kl_is_that_of_the_rows_probability(vector: LossBatch) -> None:
    per_row_B = cast("Tensor", sequence_ppo(vector, kl_coef=1.0).per_row_B).detach()
    assert float(per_row_B) + 1.2 == pytest.approx(0.001271, abs=1e-6)
    with_token_kl = cast("Tensor", masked_ppo(vector, kl="k3", kl_coef=1.0).per_token_BT)
    without = cast("Tensor", masked_ppo(vector).per_token_BT)
    assert float((with_token_kl - without).detach().sum()) == pytest.approx(0.011279, abs=1e-6)


def test_the_kl_has_its_weight_and_its_gradient(loss_batch: Make) -> None:
    """d = sum(q - p) = 1 over two sampled tokens: k3 = e - 2, and its slope 1 - e on both."""
    batch = loss_batch(log_prob=[[-1.0, -2.0, 0.0]], mask=[[1, 1, 0]], ref_log_prob_BT=[[-0.5, -1.5, 9.0]])
    loss_B = cast("Tensor", sequence_ppo(batch, kl_coef=0.1).per_row_B)
    assert float(loss_B.detach()) == pytest.approx(0.1 * (math.e - 2), abs=1e-6)
    (found,) = torch.autograd.grad(loss_B.sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, 0.1 * (1 - math.e) * torch.tensor([[1.0, 1.0, 0.0]]))


def test_gradients_of_all_tokens_are_the_rows(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[0.05, 0.05, 3.0]], old_log_prob=[[0.0] * 3], mask=[[1, 1, 0]], advantages=[2.0])
    (found,) = torch.autograd.grad(cast("Tensor", sequence_ppo(batch).per_row_B).sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, -2.0 * math.exp(0.1) * torch.tensor([[1.0, 1.0, 0.0]]))


def test_advantages_and_importance_weights_are_means_over_sampled_tokens(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[-1.0] * 3], mask=[[1, 1, 0]], advantages=[[1.0, 3.0, 50.0]], is_weights_BT=[[0.5, 1.0, 50.0]]
    )
    torch.testing.assert_close(sequence_ppo(batch).per_row_B, torch.tensor([-2.0 * 0.75]))


def test_negative_advantages_are_bounded(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[9.0, 9.0]], old_log_prob=[[0.0, 0.0]], advantages=[-1.0])
    loss = sequence_ppo(batch)
    torch.testing.assert_close(loss.per_row_B, torch.tensor([3.0]))
    assert loss.metrics["pg_clipfrac_lower"] == 1.0


def test_a_kl_term_needs_reference_log_probs(loss_batch: Make) -> None:
    with pytest.raises(ConfigError, match="reference"):
        sequence_ppo(loss_batch(log_prob=[[-1.0]]), kl_coef=0.1)
