"""Lite PPO: the group's mean, the batch's standard deviation."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.advantages.dr_grpo import centred_outcomes
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_stds


@advantage(compares_siblings=True)
def lite_ppo(batch: CreditBatch, *, std_of: str = "outcomes", epsilon: float = 1e-6) -> Tensor:
    """Returns `A = (r - mean of the group) / (std of the batch + epsilon)`, on all tokens that the session sampled.

    Groups with nearly equal rewards are not amplified by their own small standard deviation. Each valid session counts
    once; the standard deviation is the sample's (n - 1). Void sessions and sessions without a valid sibling get 0.

    The method also needs `actor.loss_agg_mode=token-mean`, plain clipping and no critic.

    Args:
        std_of: `outcomes`, or `centred` (outcomes minus the mean of their group, close to verl's
            `reinforce_plus_plus_baseline`).
        epsilon: added to the divisor.

    Raises:
        ConfigError: unknown `std_of`.

    Paper: https://arxiv.org/abs/2508.08221 (does not say which of the two standard deviations)
    """
    if std_of not in ("outcomes", "centred"):
        raise ConfigError(f"lite_ppo takes std_of outcomes or centred, got {std_of!r}")
    centred_S = centred_outcomes(batch)
    stds_S = group_stds(
        batch.outcomes_S if std_of == "outcomes" else centred_S,
        torch.zeros_like(batch.group_S),
        valid_N=batch.valid_S,
        num_groups=1,
        ddof=1,
    )
    divisors_S = stds_S + epsilon
    return batch.to_tokens(torch.where(divisors_S > 0, centred_S / divisors_S, 0.0))
