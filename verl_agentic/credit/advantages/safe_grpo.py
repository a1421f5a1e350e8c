"""GRPO over sessions. Handles void rows, sessions of several rows and constant groups."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_centred, group_counts, group_stds


@advantage(compares_siblings=True, unless={"singleton": "raw"})
def safe_grpo(
    batch: CreditBatch, *, ddof: int = 1, epsilon: float = 1e-6, std_floor: float = 0.0, singleton: str = "zero"
) -> Tensor:
    """Returns `A = (r - mean) / (max(std, std_floor) + epsilon)` of the session's group, on all tokens it sampled.

    Mean and standard deviation are taken over the outcomes of the group's valid sessions, each counted once, in
    float64. So the advantage of a constant group is exactly 0, with or without a floor. A floor damps groups that are
    almost constant, where rounding would decide. Void sessions get 0.

    Args:
        ddof: 1 for the sample's standard deviation (verl), 0 for the population's.
        epsilon: added to the divisor; the default is verl's.
        std_floor: 0.1 is a usual value.
        singleton: advantage of a session without a valid sibling: `zero`, or `raw` for verl's `A = r / (1 + epsilon)`.

    Raises:
        ConfigError: an option is out of range.

    Deviations from verl's `grpo`: void rows are excluded, each session counts once, float64, singletons get 0. Paper:
    https://arxiv.org/abs/2402.03300
    """
    if ddof not in (0, 1) or epsilon < 0 or std_floor < 0 or singleton not in ("zero", "raw"):
        raise ConfigError(
            "safe_grpo takes ddof 0 or 1, epsilon and std_floor >= 0, and singleton zero or raw, got "
            f"{ddof}, {epsilon}, {std_floor} and {singleton!r}"
        )
    scores_S = z_scores(
        batch.outcomes_S,
        batch.group_S,
        valid_S=batch.valid_S,
        num_groups=batch.num_groups,
        ddof=ddof,
        epsilon=epsilon,
        std_floor=std_floor,
    )
    if singleton == "raw":
        counts_S = group_counts(batch.group_S, valid_N=batch.valid_S, num_groups=batch.num_groups)
        scores_S = torch.where(counts_S == 1, batch.outcomes_S / (1 + epsilon), scores_S)
    return batch.to_tokens(scores_S)


def z_scores(
    values_S: Tensor,
    group_S: Tensor,
    *,
    valid_S: Tensor,
    num_groups: int,
    ddof: int,
    epsilon: float,
    std_floor: float = 0.0,
) -> Tensor:
    """Returns `[S]` float64 `(value - mean) / (max(std, std_floor) + epsilon)`; 0 in constant groups.

    Args:
        values_S: `[S]` float, finite.
        group_S: `[S]` int64 in `[0, num_groups)`.
        valid_S: `[S]` bool: sessions that count.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        epsilon: added to the divisor.
        std_floor: minimum standard deviation to divide by.
    """
    centred_S = group_centred(values_S, group_S, valid_N=valid_S, num_groups=num_groups)
    stds_S = group_stds(values_S, group_S, valid_N=valid_S, num_groups=num_groups, ddof=ddof)
    divisors_S = stds_S.clamp(min=std_floor) + epsilon
    return torch.where(divisors_S > 0, centred_S / divisors_S, 0.0)
