"""Lite PPO: the group's mean, the batch's standard deviation."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.advantages.dr_grpo import centred_outcomes
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.group_statistics import group_stds
from verl_agentic.errors import ConfigError

Tensor = torch.Tensor


@advantage(compares_siblings=True)
def lite_ppo(batch: CreditBatch, *, std_of: str = "outcomes", epsilon: float = 1e-6) -> Tensor:
    """Returns `A = (r - mean of the group) / (std of the batch + epsilon)`, on all tokens that the session sampled.

    Groups of nearly equal rewards are not blown up by their own small spread. Only valid sessions count, one vote each;
    the standard deviation is the sample's (n - 1). A session without a valid sibling gets 0, as do void ones.

    The method has a second half: `actor.loss_agg_mode=token-mean`, plain clipping, no critic.

    Args:
        batch: rewards, groups and sessions.
        std_of: `outcomes`, or `centred` for outcomes less the mean of their group, which is close to verl's
            `reinforce_plus_plus_baseline`.
        epsilon: added to the divisor.

    Raises:
        ConfigError: another `std_of`.

    Paper: https://arxiv.org/abs/2508.08221 (which of the two standard deviations, it leaves open)
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
