"""The masked PPO loss, on numbers worked out by hand and on the checklist's vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
masked_ppo = load_policy_loss("masked_ppo")


def per_token(batch: LossBatch, **options: object) -> Tensor:
    return cast("Tensor", masked_ppo(batch, **options).per_token_BT)


def outside(batch: LossBatch) -> Tensor:
    """Returns PPO with the mask outside the ratio only, as textbooks write it."""
    ratio_BT = (batch.log_prob_BT - batch.old_log_prob_BT).exp()
    clipped_BT = ratio_BT.clamp(1 - batch.clip_low, 1 + batch.clip_high)
    advantages_BT = batch.advantages_BT
    return -torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT) * batch.mask_BT


def test_token_losses_are_the_vector(masked_ppo_vector: LossBatch) -> None:
    expected = [[-1.105171, -1.2, 0.0, -0.904837, -0.818731], [0.904837, 1.822119, 0.0, 0.904837, 0.0]]
    torch.testing.assert_close(per_token(masked_ppo_vector), torch.tensor(expected), atol=1e-6, rtol=0)


def test_aggregates_are_the_vector(masked_ppo_vector: LossBatch) -> None:
    loss_BT, mask_BT = per_token(masked_ppo_vector).detach(), masked_ppo_vector.mask_BT
    sums_B = loss_BT.sum(dim=-1)
    assert float(sums_B.sum() / mask_BT.sum()) == pytest.approx(-0.056706, abs=1e-6)
    assert float((sums_B / mask_BT.sum(dim=-1)).mean()) == pytest.approx(0.101707, abs=1e-6)
    assert float(sums_B.mean()) == pytest.approx(-0.198473, abs=1e-6)
    assert float(sums_B.mean() / 5) == pytest.approx(-0.039695, abs=1e-6)
    assert float(sums_B.mean() / 8) == pytest.approx(-0.024809, abs=1e-6)


def test_the_gradient_is_the_vector_and_exactly_zero_at_masked_tokens(masked_ppo_vector: LossBatch) -> None:
    total = per_token(masked_ppo_vector).sum() / 7
    (found,) = torch.autograd.grad(total, masked_ppo_vector.log_prob_BT)
    expected = [[-0.157882, 0.0, 0.0, -0.129262, -0.116962], [0.129262, 0.260303, 0.0, 0.129262, 0.0]]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-6, rtol=0)
    assert bool((found[~masked_ppo_vector.mask_BT] == 0).all())


def test_mask_inside_and_outside_the_ratio_are_equal_in_value_and_gradient(masked_ppo_vector: LossBatch) -> None:
    batch = masked_ppo_vector
    torch.testing.assert_close(per_token(batch), outside(batch))
    (inside_grad,) = torch.autograd.grad(per_token(batch).sum(), batch.log_prob_BT)
    (outside_grad,) = torch.autograd.grad(outside(batch).sum(), batch.log_prob_BT)
    torch.testing.assert_close(inside_grad, outside_grad)


def test_an_observation_with_a_log_ratio_of_20_stays_out_of_every_metric(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[-1.0, -0.1, -1.0]], old_log_prob=[[-1.0, -20.1, -1.0]], mask=[[1, 0, 1]], advantages=[1.0]
    )
    unmasked = (batch.log_prob_BT - batch.old_log_prob_BT).exp().mean()
    assert float(unmasked.detach()) > 1e8
    assert masked_ppo(batch).metrics == {
        "pg_clipfrac": 0.0,
        "pg_clipfrac_lower": 0.0,
        "ppo_kl": 0.0,
        "approx_kl": 0.0,
        "ratio_mean": 1.0,
    }


def test_clip_higher_and_dual_clip_are_the_vector(loss_batch: Make) -> None:
    ratios, advantages = [1.25, 1.35, 0.7, 5.0, 0.5], [1.0, 1.0, -1.0, -1.0, 1.0]
    batch = loss_batch(
        log_prob=[[math.log(ratio) for ratio in ratios]],
        old_log_prob=[[0.0] * 5],
        advantages=[advantages],
        clip_low=0.2,
        clip_high=0.28,
        clip_dual=3.0,
    )
    loss = masked_ppo(batch)
    torch.testing.assert_close(loss.per_token_BT, torch.tensor([[-1.25, -1.28, 0.8, 3.0, -0.5]]))
    # Clipped: 1.35 from above, 0.7 from below; only 5 meets the bound of negative advantages.
    assert loss.metrics["pg_clipfrac"] == pytest.approx(2 / 5)
    assert loss.metrics["pg_clipfrac_lower"] == pytest.approx(1 / 5)


def test_approx_kl_is_the_checklists_number(loss_batch: Make) -> None:
    loss = masked_ppo(loss_batch(log_prob=[[0.1]], old_log_prob=[[0.0]], advantages=[1.0]))
    assert loss.metrics["approx_kl"] == pytest.approx(0.005171, abs=1e-6)
    assert loss.metrics["ppo_kl"] == pytest.approx(-0.1)


@given(log_ratio=st.floats(-200, 200))
def test_approx_kl_is_never_negative_and_finite(loss_batch: Make, log_ratio: float) -> None:
    loss = masked_ppo(loss_batch(log_prob=[[log_ratio]], old_log_prob=[[0.0]], advantages=[1.0]))
    assert 0 <= loss.metrics["approx_kl"] < math.inf


def test_decoupled_ppo_is_the_vector(loss_batch: Make) -> None:
    """Behaviour, proximal and current policy: w = pi_prox / pi_behav = e^0.5, rho = pi / pi_prox = e^0.1."""
    weight = min(math.exp(-0.5 - -1.0), 5.0)
    batch = loss_batch(log_prob=[[-0.4]], old_log_prob=[[-0.5]], advantages=[1.0], is_weights_BT=[[weight]])
    torch.testing.assert_close(per_token(batch), torch.tensor([[-1.822119]]), atol=1e-6, rtol=0)
    naive = replace(batch, old_log_prob_BT=torch.tensor([[-1.0]]), is_weights_BT=None)
    torch.testing.assert_close(per_token(naive), torch.tensor([[-1.2]]))


@pytest.mark.parametrize(
    ("kl", "slopes"),
    [
        # p - q = 0.5, -1.0, 0.0
        ("k1", [1.0, 1.0, 1.0]),
        ("k2", [0.5, -1.0, 0.0]),
        ("k3", [1 - math.exp(-0.5), -1.718282, 0.0]),
        ("k3_is", [0.5, -1.0, 0.0]),
    ],
)
def test_a_kl_term_adds_its_value_and_its_gradient(loss_batch: Make, kl: str, slopes: list[float]) -> None:
    values = {"k1": [0.5, -1.0, 0.0], "k2": [0.125, 0.5, 0.0], "k3": [0.106531, 0.718282, 0.0]}
    batch = loss_batch(
        log_prob=[[-1.0, -2.0, -0.7, -5.0]], mask=[[1, 1, 1, 0]], ref_log_prob_BT=[[-1.5, -1.0, -0.7, -1.0]]
    )
    loss = masked_ppo(batch, kl=kl, kl_coef=0.1)
    loss_BT = cast("Tensor", loss.per_token_BT)
    expected = [*values["k3" if kl == "k3_is" else kl], 0.0]
    torch.testing.assert_close(loss_BT, 0.1 * torch.tensor([expected]), atol=1e-6, rtol=0)
    (found,) = torch.autograd.grad(loss_BT.sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, 0.1 * torch.tensor([[*slopes, 0.0]]), atol=1e-6, rtol=0)
    assert loss.metrics["ref_kl"] == pytest.approx(sum(expected) / 3, abs=1e-6)


def test_a_kl_term_needs_reference_log_probs(masked_ppo_vector: LossBatch) -> None:
    with pytest.raises(ConfigError, match=r"actor\.use_kl_loss"):
        masked_ppo(masked_ppo_vector, kl="k3")
