"""ReMax: the outcome of the greedy session as the baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch


@advantage(needs=("baseline_B",))
def safe_remax(batch: CreditBatch) -> Tensor:
    """Returns `A = r - outcome of the greedy session of the same prompt`, on all tokens that the session sampled.

    Void sessions get 0, and so do sessions whose baseline is NaN (the greedy session was void). Groups are not used.

    Deviations from verl's `remax`: verl credits a token only with later rewards. Here, as in the paper, the reward is
    one outcome. Both are equal if all rewards are on the last token.
    Paper: https://arxiv.org/abs/2310.10505
    """
    baseline_S = batch.per_session(torch.as_tensor(batch.baseline_B).float())
    advantages_S = torch.where(baseline_S.isfinite(), batch.outcomes_S - baseline_S, 0.0)
    return batch.to_tokens(advantages_S)
