"""Implicit token rewards (PRIME): a language model trained on outcomes, read as a reward model of every token."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from verl_agentic.algorithms.aggregate import masked, row_sums

Tensor = torch.Tensor


def implicit_rewards(log_prob_BT: Tensor, ref_log_prob_BT: Tensor, mask_BT: Tensor, *, beta: float = 0.05) -> Tensor:
    """Returns `[B, T]` float32: `beta (log pi_phi - log pi_ref)`, 0 where the mask is 0.

    Args:
        log_prob_BT: `[B, T]` float: under the reward model phi.
        ref_log_prob_BT: `[B, T]` float: under the reference policy.
        mask_BT: `[B, T]` bool.
        beta: scale of the reward.

    Paper: https://arxiv.org/abs/2502.01456
    """
    return beta * masked(log_prob_BT.float() - ref_log_prob_BT.float(), mask_BT)


def outcome_loss(rewards_BT: Tensor, outcome_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B]` float32: cross-entropy between `sigmoid(sum_t r_t)` and the outcome, which trains phi.

    Rows without sampled tokens have loss 0.

    Args:
        rewards_BT: `[B, T]` float: `implicit_rewards`, with gradient.
        outcome_B: `[B]` float in [0, 1].
        mask_BT: `[B, T]` bool.

    Paper: https://arxiv.org/abs/2502.01456; the authors' code takes the sigmoid first, which is the same but overflows.
    """
    losses_B = F.binary_cross_entropy_with_logits(row_sums(rewards_BT, mask_BT), outcome_B.float(), reduction="none")
    return torch.where(mask_BT.any(dim=-1), losses_B, 0.0)
