"""Implicit token rewards (PRIME): a language model trained on outcomes gives a reward per token."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.credit.aggregate import masked, row_sums, token_mean
from verl_agentic.credit.credit.batch import CreditBatch


class ImplicitRewardSettings(Settings):
    """Implicit token rewards (PRIME): the section `agentic.implicit_reward`."""

    model_path: str
    """Folder of the reward model phi, as transformers loads it. It needs the vocabulary of the policy."""
    beta: float = setting(0.05, above=0)
    """Scale of the token rewards; the default is the paper's. Set the value that phi was trained with."""
    outcome_coef: float = setting(1.0, min=0)
    """Factor of the task's rewards before the token rewards are added. 0 leaves the task's rewards out."""

    def check_together(self) -> None:
        if not self.model_path:
            raise ConfigError(
                "model_path must name the reward model, got ''; set it to the folder of a model trained by "
                "verl_agentic.verl.extensions.offline.outcome_trainer"
            )


def implicit_rewards(log_prob_BT: Tensor, ref_log_prob_BT: Tensor, mask_BT: Tensor, *, beta: float = 0.05) -> Tensor:
    """Returns `[B, T]` float32: `beta (log pi_phi - log pi_ref)`, 0 where the mask is 0.

    Args:
        log_prob_BT: `[B, T]` float: under the reward model phi.
        ref_log_prob_BT: `[B, T]` float: under the reference policy.
        beta: scale of the reward.

    Paper: https://arxiv.org/abs/2502.01456
    """
    return beta * masked(log_prob_BT.float() - ref_log_prob_BT.float(), mask_BT)


@dataclass(frozen=True, kw_only=True)
class TokenRewards:
    """Implicit rewards of a batch, in addition to those of its task."""

    rewards_BT: Tensor
    """`[B, T]` float32: `implicit_rewards`."""
    outcome_coef: float
    """See `ImplicitRewardSettings`."""

    def added_to(self, rewards_BT: Tensor) -> Tensor:
        """Returns `[B, T]` the rewards for the estimator: the task's and the implicit ones."""
        return self.outcome_coef * rewards_BT + self.rewards_BT

    def metrics(self, batch: CreditBatch) -> dict[str, float]:
        """Returns the health of the rewards."""
        return implicit_health(batch, self.rewards_BT)


def implicit_health(batch: CreditBatch, rewards_BT: Tensor) -> dict[str, float]:
    """Returns the mean implicit reward, and how well implicit rewards predict success.

    - `credit/implicit_reward_mean`: over sampled tokens of valid rows.
    - `credit/implicit_accuracy`: share of valid sessions whose implicit rewards sum to above 0 if the raw outcome
      (`acc`) is above 1/2, and to below 0 if it is below. Sessions without an outcome, or with exactly 1/2, are left
      out.

    Args:
        rewards_BT: `[B, T]` float: `implicit_rewards`.
    """
    mask_BT = batch.mask_BT & batch.valid_B.unsqueeze(-1)
    health = {"credit/implicit_reward_mean": float(token_mean(rewards_BT, mask_BT))}
    if "acc" in batch.parts:
        returns_S = batch.sum_per_session(row_sums(rewards_BT, mask_BT))
        acc_S = batch.per_session(batch.parts["acc"].float())
        known_S = batch.valid_S & acc_S.isfinite() & (acc_S != 0.5)
        is_right_S = returns_S * (acc_S - 0.5) > 0
        health["credit/implicit_accuracy"] = float(is_right_S[known_S].float().mean()) if bool(known_S.any()) else 0.0
    return health


@dataclass(frozen=True, kw_only=True)
class OutcomeLoss:
    """The loss of trajectories."""

    loss_B: Tensor
    """`[B]` float32"""
    return_B: Tensor
    """`[B]` float32, without gradient: sum of the implicit rewards; above 0, phi predicts a success."""


def outcome_loss(log_prob_B: Tensor, outcome_B: Tensor, *, ref_log_prob_B: Tensor, beta: float = 0.05) -> OutcomeLoss:
    """Returns the cross-entropy between `sigmoid(sum_t r_t)` and the outcome, the training loss of phi.

    Args:
        log_prob_B: `[B]` float: log-prob of the whole trajectory under phi, its sampled tokens only.
        outcome_B: `[B]` float in [0, 1].
        ref_log_prob_B: `[B]` float: under the reference policy.
        beta: scale of the rewards.

    Paper: https://arxiv.org/abs/2502.01456; the authors' code takes the sigmoid first, which is the same but overflows.
    """
    return_B = beta * (log_prob_B - ref_log_prob_B)
    losses_B = F.binary_cross_entropy_with_logits(return_B, outcome_B.float(), reduction="none")
    return OutcomeLoss(loss_B=losses_B, return_B=return_B.detach())
