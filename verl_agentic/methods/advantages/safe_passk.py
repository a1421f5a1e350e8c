"""Advantages for pass@k: the margin of a group's best session."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_centred, group_counts, group_stds


@advantage(compares_siblings=True)
def safe_passk(batch: CreditBatch, *, normalize: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Returns `(best - second best) / (std + epsilon)` on the tokens of the group's best session, 0 on all others.

    If two sessions tie for the best, both get 0. Each valid session counts once; the standard deviation is the sample's
    (n - 1). Void sessions and sessions without a valid sibling get 0.

    Args:
        normalize: whether to divide by the standard deviation.
        epsilon: added to the divisor.

    Deviations from verl's `grpo_passk`: void rows are excluded, each session counts once, and groups of one raise no
    error. Paper: https://arxiv.org/abs/2503.19595
    """
    among = {"group_N": batch.group_S, "valid_N": batch.valid_S, "num_groups": batch.num_groups}
    outcomes_S = group_centred(batch.outcomes_S, **among)
    best_S = _find_highest(outcomes_S, batch, among_S=batch.valid_S)
    is_best_S = batch.valid_S & (outcomes_S == best_S)
    second_S = _find_highest(outcomes_S, batch, among_S=batch.valid_S & ~is_best_S)
    is_alone_S = group_counts(batch.group_S, valid_N=is_best_S, num_groups=batch.num_groups) == 1
    gains_S = torch.where(is_best_S & is_alone_S & second_S.isfinite(), best_S - second_S, 0.0)
    if normalize:
        stds_S = group_stds(batch.outcomes_S, **among, ddof=1)
        gains_S = torch.where(gains_S > 0, gains_S / (stds_S + epsilon), 0.0)
    return batch.to_tokens(gains_S)


def _find_highest(values_S: Tensor, batch: CreditBatch, *, among_S: Tensor) -> Tensor:
    """Returns `[S]`: the highest value among the chosen sessions of each session's group; -inf if there are none."""
    highest_G = torch.full((batch.num_groups,), -torch.inf, dtype=values_S.dtype, device=values_S.device)
    candidates_S = torch.where(among_S, values_S, -torch.inf)
    return highest_G.scatter_reduce(0, batch.group_S, candidates_S, reduce="amax")[batch.group_S]
