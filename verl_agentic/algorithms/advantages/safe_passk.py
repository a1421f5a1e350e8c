"""Advantages for pass@k: what the best session of a group adds."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.group_statistics import group_centred, group_stds

Tensor = torch.Tensor


@advantage(compares_siblings=True)
def safe_passk(batch: CreditBatch, *, normalize: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Returns `(best - second best) / (std + epsilon)` on the tokens of the group's best session, 0 on all others.

    Two best ones get 0, as neither adds anything to the other. Only valid sessions count, one vote each; the standard
    deviation is the sample's (n - 1). A session without a valid sibling gets 0, as do void ones.

    Args:
        batch: rewards, groups and sessions.
        normalize: whether to divide.
        epsilon: added to the divisor.

    Deviations from verl's `grpo_passk`: validity, one vote per session, and no error for groups of one.
    Paper: https://arxiv.org/abs/2503.19595
    """
    among = {"group_N": batch.group_S, "valid_N": batch.valid_S, "num_groups": batch.num_groups}
    outcomes_S = group_centred(batch.outcomes_S, **among)
    best_S = _highest(outcomes_S, batch, among_S=batch.valid_S)
    is_best_S = batch.valid_S & (outcomes_S == best_S)
    second_S = _highest(outcomes_S, batch, among_S=batch.valid_S & ~is_best_S)
    is_alone_S = _count(is_best_S, batch) == 1
    gains_S = torch.where(is_best_S & is_alone_S & second_S.isfinite(), best_S - second_S, 0.0)
    if normalize:
        stds_S = group_stds(batch.outcomes_S, **among, ddof=1)
        gains_S = torch.where(gains_S > 0, gains_S / (stds_S + epsilon), 0.0)
    return batch.to_tokens(gains_S)


def _highest(values_S: Tensor, batch: CreditBatch, *, among_S: Tensor) -> Tensor:
    """Returns `[S]` the highest value among some sessions of everyone's group; -inf where there are none."""
    highest_G = torch.full((batch.num_groups,), -torch.inf, dtype=values_S.dtype, device=values_S.device)
    candidates_S = torch.where(among_S, values_S, -torch.inf)
    return highest_G.scatter_reduce(0, batch.group_S, candidates_S, reduce="amax")[batch.group_S]


def _count(which_S: Tensor, batch: CreditBatch) -> Tensor:
    counts_G = torch.zeros(batch.num_groups, dtype=torch.int64, device=which_S.device)
    return counts_G.index_add_(0, batch.group_S, which_S.long())[batch.group_S]
