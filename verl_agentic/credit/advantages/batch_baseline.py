"""The mean of the whole batch as the baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_centred


@advantage()
def batch_baseline(batch: CreditBatch) -> Tensor:
    """Returns `A = r - mean over all valid sessions of the batch`, on all tokens that the session sampled.

    Less noisy than `dr_grpo` for groups of about two sessions. But easy prompts raise the advantage of all of
    their sessions, and hard prompts lower it. Void sessions get 0. Groups of one get a signal too.
    """
    everyone_S = torch.zeros_like(batch.group_S)
    return batch.to_tokens(group_centred(batch.outcomes_S, everyone_S, valid_N=batch.valid_S, num_groups=1))
