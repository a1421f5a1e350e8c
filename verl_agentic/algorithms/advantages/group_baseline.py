"""The group's mean as the baseline."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.advantages.dr_grpo import dr_grpo
from verl_agentic.algorithms.credit.batch import CreditBatch

Tensor = torch.Tensor


@advantage(compares_siblings=True)
def group_baseline(batch: CreditBatch) -> Tensor:
    """Returns `A = r - mean over the valid sessions of the group`, on all tokens that the session sampled.

    The counterpart of `batch_baseline`: every prompt is judged by itself, so that easy prompts do not outweigh hard
    ones; with groups of two or so, the mean is a noisy baseline. The numbers are those of `dr_grpo`, which stands for a
    loss without division by lengths as well.

    A session without a valid sibling gets 0, as do void ones.
    """
    return dr_grpo.function(batch)
