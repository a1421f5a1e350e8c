"""A language model read as a reward model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.losses.implicit_reward import (
    ImplicitRewardSettings,
    TokenRewards,
    implicit_health,
    implicit_rewards,
    outcome_loss,
)


def test_rewards_are_the_vector() -> None:
    rewards_BT = implicit_rewards(
        torch.tensor([[-0.5, -1.0, -0.2]]), torch.tensor([[-0.7, -0.8, -0.2]]), torch.ones(1, 3, dtype=torch.bool)
    )
    torch.testing.assert_close(rewards_BT, torch.tensor([[0.01, -0.01, 0.0]]))


def test_masked_tokens_have_no_reward() -> None:
    phi_BT, mask_BT = torch.tensor([[-0.5, float("nan")]]), torch.tensor([[True, False]])
    rewards_BT = implicit_rewards(phi_BT, torch.tensor([[-0.7, float("inf")]]), mask_BT)
    torch.testing.assert_close(rewards_BT, torch.tensor([[0.01, 0.0]]))


def test_rewards_of_the_task_are_weighted_and_those_of_tokens_are_not() -> None:
    tokens = TokenRewards(rewards_BT=torch.tensor([[0.25, -0.5]]), outcome_coef=0.5)
    assert tokens.added_to(torch.tensor([[0.0, 1.0]])).tolist() == [[0.25, 0.0]]


def test_the_loss_is_the_cross_entropy_of_the_sum() -> None:
    given = outcome_loss(
        torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 0.25]), ref_log_prob_B=torch.tensor([-5.0, -5.0]), beta=0.5
    )
    right, wrong = math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))
    assert given.loss_B.tolist() == pytest.approx([right, 0.25 * right + 0.75 * wrong])
    assert given.return_B.tolist() == [2.0, 2.0]


def test_a_success_gets_likelier_and_a_failure_less() -> None:
    log_prob_B = torch.tensor([-3.0, -3.0], requires_grad=True)
    given = outcome_loss(log_prob_B, torch.tensor([1.0, 0.0]), ref_log_prob_B=torch.tensor([-3.0, -3.0]))
    (slope,) = torch.autograd.grad(given.loss_B.sum(), log_prob_B)
    # At the reference: beta * (1/2 - outcome), with the paper's beta.
    torch.testing.assert_close(slope, torch.tensor([-0.025, 0.025]))


def test_the_loss_stays_finite_where_a_sigmoid_would_not() -> None:
    given = outcome_loss(torch.tensor([1000.0]), torch.tensor([0.0]), ref_log_prob_B=torch.tensor([0.0]), beta=0.5)
    assert float(given.loss_B) == 500.0


def batch(**known: Any) -> CreditBatch:
    """Three sessions, the first of two rows, the last one void."""
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [0, 0]])
    return CreditBatch.of(
        rewards=torch.zeros(4, 2), mask=mask, groups=[0] * 4, sessions=[0, 0, 1, 2], order=[0, 1, 0, 0], **known
    )


REWARDS = torch.tensor([[0.5, -0.75], [0.5, 0.0], [-0.25, 0.125], [0.0, 0.0]])


def test_health_is_over_sampled_tokens_and_sessions_with_an_outcome() -> None:
    right = implicit_health(batch(parts={"acc": torch.tensor([1.0, 1.0, 0.0, 1.0])}), REWARDS)
    # (0.5 - 0.75 + 0.5 - 0.25 + 0.125) / 5; sessions are worth 0.25 and -0.125.
    assert right == {"credit/implicit_reward_mean": pytest.approx(0.025), "credit/implicit_accuracy": 1.0}
    half = implicit_health(batch(parts={"acc": torch.tensor([0.0, 0.0, 0.0, 0.0])}), REWARDS)
    assert half["credit/implicit_accuracy"] == 0.5
    unknown = implicit_health(batch(parts={"acc": torch.tensor([1.0, 1.0, math.nan, 0.0])}), REWARDS)
    assert unknown["credit/implicit_accuracy"] == 1.0
    undecided = implicit_health(batch(parts={"acc": torch.tensor([1.0, 1.0, 0.5, 0.0])}), REWARDS)
    assert undecided["credit/implicit_accuracy"] == 1.0
    assert set(implicit_health(batch(), REWARDS)) == {"credit/implicit_reward_mean"}


def test_the_defaults_are_the_papers() -> None:
    settings = read_settings(ImplicitRewardSettings, {"model_path": "phi"}, section="s")
    assert (settings.beta, settings.outcome_coef) == (0.05, 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_path": "phi", "bta": 1}, "'bta'"),
        ({"beta": 0.1}, "'model_path'"),
        ({"model_path": ""}, "implicit_reward.model_path"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings(ImplicitRewardSettings, values, section="algorithm.implicit_reward")
