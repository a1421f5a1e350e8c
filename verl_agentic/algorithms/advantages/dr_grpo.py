"""Dr. GRPO: the distance to the group's mean, not divided by its spread."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.group_statistics import group_centred

Tensor = torch.Tensor


@advantage(compares_siblings=True)
def dr_grpo(batch: CreditBatch) -> Tensor:
    """Returns `A = r - mean` of the session's group, on all tokens it sampled.

    Only valid sessions are in the mean, one vote each. A session without a valid sibling gets 0, as do void ones.

    The method has a second half: `actor.loss_agg_mode=seq-mean-token-sum-norm`, so that the loss is not divided by the
    length either, and no KL term.

    Deviations from verl's `grpo` with `norm_adv_by_std_in_grpo=False`: validity, one vote per session, float64, and
    singletons, whose bare reward verl takes.
    Paper: https://arxiv.org/abs/2503.20783
    """
    return batch.to_tokens(centred_outcomes(batch))


def centred_outcomes(batch: CreditBatch) -> Tensor:
    """Returns `[S]` float64: outcomes less the mean of the valid sessions of their group."""
    return group_centred(batch.outcomes_S, batch.group_S, valid_N=batch.valid_S, num_groups=batch.num_groups)
