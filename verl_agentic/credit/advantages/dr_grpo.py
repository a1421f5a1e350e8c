"""Dr. GRPO: the reward minus the group's mean, not divided by the standard deviation."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_centred


@advantage(compares_siblings=True)
def dr_grpo(batch: CreditBatch) -> Tensor:
    """Returns `A = r - mean` of the session's group, on all tokens it sampled.

    The mean counts each valid session once. Void sessions and sessions without a valid sibling get 0.

    The method also needs `actor.loss_agg_mode=seq-mean-token-sum-norm` with a constant `actor.loss_scale_factor`, so
    that the loss is not divided by a length, and no KL term.

    Deviations from verl's `grpo` with `norm_adv_by_std_in_grpo=False`: void rows are excluded, each session counts
    once, float64, and singletons get 0 (in verl, their raw reward).
    Paper: https://arxiv.org/abs/2503.20783
    """
    return batch.to_tokens(centred_outcomes(batch))


def centred_outcomes(batch: CreditBatch) -> Tensor:
    """Returns `[S]` float64: outcomes minus the mean of the valid sessions of their group."""
    return group_centred(batch.outcomes_S, batch.group_S, valid_N=batch.valid_S, num_groups=batch.num_groups)
