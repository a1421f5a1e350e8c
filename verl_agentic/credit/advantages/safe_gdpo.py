"""GDPO: z-scores each part of the reward within the group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.advantages.safe_grpo import z_scores
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_stds


@advantage(needs=("parts",), compares_siblings=True)
def safe_gdpo(
    batch: CreditBatch, *, keys: Sequence[str] = (), weights: Sequence[float] | None = None, epsilon: float = 1e-6
) -> Tensor:
    """Returns the weighted sum of the parts' z-scores in the group, whitened over the batch, on all sampled tokens.

    `z_k = (r_k - mean_k) / (std_k + epsilon)` of the group's valid sessions, then `A = sum_k w_k z_k / std of all such
    sums`; both standard deviations are the sample's (n - 1). So a part with a large scale does not dominate. The sums
    need no centring: their mean is 0, because each session counts once.

    Void sessions and sessions without a valid sibling get 0.

    Args:
        batch: its `parts` are read instead of its rewards.
        keys: names of the parts; empty: all parts.
        weights: one per key; None: 1 each.
        epsilon: added to the divisor of a part.

    Raises:
        ConfigError: the batch lacks a part, or the numbers of weights and keys differ.

    Deviations from verl's `gdpo`: void rows are excluded, each session counts once (verl whitens over tokens, so long
    sessions count more), float64, singletons get 0.
    Paper: https://arxiv.org/abs/2601.05242
    """
    names = list(keys) or sorted(batch.parts)
    if missing := sorted(set(names) - set(batch.parts)):
        raise ConfigError(f"safe_gdpo's keys must be parts of the reward, got {missing}; it has {sorted(batch.parts)}")
    factors = [1.0] * len(names) if weights is None else list(weights)
    if len(factors) != len(names):
        raise ConfigError(f"safe_gdpo takes one weight per key, got {len(factors)} for {names}")
    parts = [batch.per_session(batch.parts[name].float()) for name in names]
    valid_S = torch.stack([batch.valid_S, *(part_S.isfinite() for part_S in parts)]).all(dim=0)
    sums_S = torch.zeros_like(parts[0], dtype=torch.float64)
    for factor, part_S in zip(factors, parts, strict=True):
        scores_S = z_scores(
            torch.where(valid_S, part_S, 0.0),
            batch.group_S,
            valid_S=valid_S,
            num_groups=batch.num_groups,
            ddof=1,
            epsilon=epsilon,
        )
        sums_S += factor * torch.where(valid_S, scores_S, 0.0)
    everyone_S = torch.zeros_like(batch.group_S)
    variance_S = group_stds(sums_S, everyone_S, valid_N=valid_S, num_groups=1, ddof=1) ** 2
    # The epsilon of verl's whitening.
    return batch.to_tokens(sums_S * torch.rsqrt(variance_S + 1e-8))
