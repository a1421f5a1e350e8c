"""The mean of the whole batch as the baseline."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.group_statistics import group_centred

Tensor = torch.Tensor


@advantage()
def batch_baseline(batch: CreditBatch) -> Tensor:
    """Returns `A = r - mean over all valid sessions of the batch`, on all tokens that the session sampled.

    Steadier than `group_baseline` with groups of two or so; but a session is also credited with its prompt being easy:
    all sessions of a prompt may be pushed up, and all of another down. Void sessions get 0. A group of one is as good
    as any other.
    """
    everyone_S = torch.zeros_like(batch.group_S)
    return batch.to_tokens(group_centred(batch.outcomes_S, everyone_S, valid_N=batch.valid_S, num_groups=1))
