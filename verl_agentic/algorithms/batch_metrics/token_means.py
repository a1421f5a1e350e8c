"""Entropy and KL of a batch in nats per sampled token, whatever the loss divides by."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.algorithms.aggregate import token_mean
from verl_agentic.metric import Mean, Metric

ENTROPY, REF_KL = "batch/entropy", "batch/ref_kl"
_TOKENS = "sampled tokens, also those that rejection sampling takes out of the loss"
METRICS = (
    Metric(name=ENTROPY, unit="nats", per="token", rows=_TOKENS),
    Metric(name=REF_KL, unit="nats", per="token", rows=_TOKENS),
)


def token_means(
    mask_BT: Tensor,
    *,
    entropy_BT: Tensor | None = None,
    log_prob_BT: Tensor | None = None,
    ref_log_prob_BT: Tensor | None = None,
) -> dict[str, Mean]:
    """Returns `batch/entropy`, and `batch/ref_kl = mean(log pi - log pi_ref)`, before the update.

    verl's `actor/entropy` and `actor/kl_loss` are divided as `actor.loss_agg_mode` says, so most modes give them
    another unit. Metrics without their columns are left out, and so are all of a batch without sampled tokens.

    Args:
        mask_BT: `[B, T]` bool: true on sampled tokens.
        entropy_BT: `[B, T]` float, nats.
        log_prob_BT: `[B, T]` float: under the policy before the update.
        ref_log_prob_BT: `[B, T]` float: under the reference policy.
    """
    values_BT = {ENTROPY: entropy_BT}
    if log_prob_BT is not None and ref_log_prob_BT is not None:
        values_BT[REF_KL] = log_prob_BT.float() - ref_log_prob_BT.float()
    count = int(mask_BT.sum())
    return {
        name: Mean(float(token_mean(column_BT, mask_BT)), count=count)
        for name, column_BT in values_BT.items()
        if column_BT is not None and count
    }
