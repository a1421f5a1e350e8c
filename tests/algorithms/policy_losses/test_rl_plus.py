"""Demonstrations beside the policy's own rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch

from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss
from verl_agentic.methods.policy_losses.rl_plus import exploration_advantage, external_ratio

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
rl_plus, masked_ppo = load_policy_loss("rl_plus"), load_policy_loss("masked_ppo")


def test_ratio_and_advantage_are_the_vector() -> None:
    ratio = external_ratio(torch.tensor(0.4).log(), torch.tensor(0.2).log())
    torch.testing.assert_close(ratio, torch.tensor(1.0))  # 2 * .4 / (.2 + .6)
    at_04 = exploration_advantage(torch.tensor(1.0), torch.tensor(0.4).log())
    at_09 = exploration_advantage(torch.tensor(1.0), torch.tensor(0.9).log())
    torch.testing.assert_close(torch.stack([at_04, at_09]), torch.tensor([0.774597, 0.316228]), atol=1e-6, rtol=0)


def test_external_rows_use_it_and_own_rows_are_ppo(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[math.log(0.4), -0.5], [math.log(0.4), -0.5]],
        old_log_prob=[[math.log(0.2), -0.9], [math.log(0.2), -0.9]],
        advantages=[1.0, 1.0],
        mask=[[1, 1], [1, 0]],
        is_external_B=[False, True],
    )
    loss = rl_plus(batch)
    loss_BT = cast("Tensor", loss.per_token_BT)
    torch.testing.assert_close(loss_BT[1], torch.tensor([-0.774597, 0.0]), atol=1e-6, rtol=0)
    own = masked_ppo(replace(batch, mask_BT=torch.tensor([[1, 1], [0, 0]]).bool()))
    assert torch.equal(loss_BT[0], cast("Tensor", own.per_token_BT)[0])
    assert loss.metrics == {
        **own.metrics,
        "external_ratio_mean": pytest.approx(1.0),
        "external_frac": pytest.approx(1 / 3),
    }


def test_the_gradient_goes_through_the_ratio_only(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[math.log(0.4)]], old_log_prob=[[math.log(0.2)]], advantages=[1.0], is_external_B=[True]
    )
    (found,) = torch.autograd.grad(cast("Tensor", rl_plus(batch).per_token_BT).sum(), batch.log_prob_BT)
    # d(2 pi / 0.8) / d log pi = the ratio itself, 1.
    torch.testing.assert_close(found, torch.tensor([[-0.774597]]), atol=1e-6, rtol=0)


def test_external_rows_are_neither_clipped_nor_corrected_for_the_rollout(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[math.log(0.9)]],
        old_log_prob=[[math.log(0.01)]],
        advantages=[1.0],
        is_external_B=[True],
        is_weights_BT=[[0.001]],
    )
    expected = 1.8 / (0.01 + 0.505) * math.sqrt(0.1)
    torch.testing.assert_close(rl_plus(batch).per_token_BT, torch.tensor([[-expected]]))


def test_own_rows_are_corrected_for_the_rollout(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-1.0]], advantages=[2.0], is_external_B=[False], is_weights_BT=[[0.25]])
    torch.testing.assert_close(rl_plus(batch).per_token_BT, torch.tensor([[-0.5]]))


def test_a_token_that_is_certain_has_nothing_to_teach(loss_batch: Make) -> None:
    # 1e-3 above 0: log-probs of bfloat16 may be.
    batch = loss_batch(log_prob=[[1e-3]], old_log_prob=[[0.0]], advantages=[1.0], is_external_B=[True])
    assert float(cast("Tensor", rl_plus(batch).per_token_BT).detach()) == 0.0
