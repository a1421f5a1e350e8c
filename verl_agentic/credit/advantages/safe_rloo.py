"""RLOO over sessions: the mean of the siblings as the baseline."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.advantages.dr_grpo import centred_outcomes
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_counts


@advantage(compares_siblings=True)
def safe_rloo(batch: CreditBatch) -> Tensor:
    """Returns `A_i = r_i - mean of r_j over j != i = K / (K - 1) (r_i - mean)`, on all tokens that the session sampled.

    K is the number of valid sessions of the group. Void sessions and sessions without a valid sibling get 0.

    Deviations from verl's `rloo`: void rows are excluded, each session counts once, float64, and singletons get 0 (in
    verl, their raw reward).
    Paper: https://arxiv.org/abs/2402.14740
    """
    counts_S = group_counts(batch.group_S, valid_N=batch.valid_S, num_groups=batch.num_groups)
    return batch.to_tokens(centred_outcomes(batch) * counts_S / (counts_S - 1).clamp(min=1.0))
