"""PPO and imitation of what succeeded, on numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.losses.successes import is_success, positive_share
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
vapo, masked_ppo = load_policy_loss("vapo"), load_policy_loss("masked_ppo")


def per_token(batch: LossBatch, **options: object) -> Tensor:
    return cast("Tensor", vapo(batch, **options).per_token_BT)


@pytest.fixture
def batch(loss_batch: Make) -> LossBatch:
    """A success with 2 of the batch's 5 sampled tokens, and two rows that are none."""
    return loss_batch(
        log_prob=[[-0.5, -9.0, -1.5], [-0.2, -0.3, -9.0], [-0.4, -9.0, -9.0]],
        mask=[[1, 0, 1], [1, 1, 0], [1, 0, 0]],
        outcome_B=[1.0, 0.5, math.nan],
        positive_share_B=[0.4, 0.4, 0.4],
    )


def test_the_second_term_is_the_mean_over_the_tokens_of_successes(batch: LossBatch) -> None:
    # Advantages are 0. 0.1 * 0.5 / (2/5) = 0.125 and 0.1 * 1.5 / (2/5) = 0.375.
    loss = vapo(batch)
    expected = torch.tensor([[0.125, 0.0, 0.375], [0.0] * 3, [0.0] * 3])
    torch.testing.assert_close(loss.per_token_BT, expected)
    # Aggregated as token-mean: 0.1 * (0.5 + 1.5) / 2.
    assert float(per_token(batch).sum().detach() / 5) == pytest.approx(0.1)
    assert loss.metrics["positive_nll"] == pytest.approx(1.0) and loss.metrics["positive_share"] == pytest.approx(0.4)


def test_the_gradient_pulls_up_what_succeeded_and_nothing_else(batch: LossBatch) -> None:
    (found,) = torch.autograd.grad(per_token(batch, lm_coef=0.2).sum() / 5, batch.log_prob_BT)
    # -0.2 / 2 on each of the two tokens.
    torch.testing.assert_close(found, torch.tensor([[-0.1, 0.0, -0.1], [0.0] * 3, [0.0] * 3]))


def test_the_first_term_is_ppo(batch: LossBatch) -> None:
    of = replace(batch, advantages_BT=torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))
    ppo = masked_ppo(of)
    torch.testing.assert_close(per_token(of, lm_coef=0.0), ppo.per_token_BT)
    torch.testing.assert_close(per_token(of) - cast("Tensor", ppo.per_token_BT), per_token(batch))
    assert ppo.metrics.items() <= vapo(of).metrics.items()


def test_a_batch_without_successes_is_ppo_alone(batch: LossBatch) -> None:
    without = replace(batch, outcome_B=torch.zeros(3), positive_share_B=torch.zeros(3))
    assert torch.equal(per_token(without), torch.zeros(3, 3))


def test_the_share_is_of_tokens_not_of_rows() -> None:
    outcome_B = torch.tensor([1.0, 0.999, math.nan, 1.0])
    assert is_success(outcome_B).tolist() == [True, False, False, True]
    assert positive_share(outcome_B, torch.tensor([6, 10, 3, 1])) == pytest.approx(7 / 20)
    assert positive_share(outcome_B, torch.zeros(4, dtype=torch.int64)) == 0.0


def test_a_trainer_that_knows_no_outcomes_is_told_which_does(batch: LossBatch) -> None:
    with pytest.raises(ConfigError, match="'outcome_B'"):
        vapo(replace(batch, outcome_B=None, positive_share_B=None))
