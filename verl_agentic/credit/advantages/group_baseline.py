"""The group's mean as the baseline."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.advantages.dr_grpo import dr_grpo
from verl_agentic.credit.credit.batch import CreditBatch


@advantage(compares_siblings=True)
def group_baseline(batch: CreditBatch) -> Tensor:
    """Returns `A = r - mean over the valid sessions of the group`, on all tokens that the session sampled.

    Each prompt has its own baseline, unlike in `batch_baseline`, so easy prompts do not outweigh hard ones. With groups
    of about two sessions the mean is a noisy baseline. The numbers equal those of `dr_grpo`, which also names a loss
    without division by lengths.

    Void sessions and sessions without a valid sibling get 0.
    """
    return dr_grpo.function(batch)
