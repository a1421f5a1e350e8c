"""ReMax: the outcome of the greedy session as the baseline."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import CreditBatch

Tensor = torch.Tensor


@advantage(needs=("baseline_B",))
def safe_remax(batch: CreditBatch) -> Tensor:
    """Returns `A = r - outcome of the greedy session of the same prompt`, on all tokens that the session sampled.

    Void sessions get 0, as do sessions whose baseline is NaN (the greedy session was void itself). Siblings play no
    part, so that groups of one are as good as any.

    Deviation from verl's `remax`: it credits a token with the rewards after it only; here, as in the paper, a reward is
    one outcome. The two are the same where rewards lie on the last token.
    Paper: https://arxiv.org/abs/2310.10505
    """
    baseline_S = batch.per_session(torch.as_tensor(batch.baseline_B).float())
    advantages_S = torch.where(baseline_S.isfinite(), batch.outcomes_S - baseline_S, 0.0)
    return batch.to_tokens(advantages_S)
