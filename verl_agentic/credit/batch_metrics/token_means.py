"""Entropy and KL of a batch in nats per sampled token, whatever the loss divides by."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.base.metric import CountedMean, Metric
from verl_agentic.credit.aggregate import token_mean
from verl_agentic.credit.losses.kl import kl_per_token

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
) -> dict[str, CountedMean]:
    """Returns `batch/entropy`, and `batch/ref_kl = mean((rho - 1) - ln rho)`, rho = pi_ref / pi, before the update.

    The estimate of the KL (k3, verl's `low_var_kl`) is never negative, also if another version of the policy sampled. A
    token counts at most 10 nats, as in verl.

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
        log_probs = {"log_prob_BT": log_prob_BT, "old_log_prob_BT": log_prob_BT, "ref_log_prob_BT": ref_log_prob_BT}
        values_BT[REF_KL] = kl_per_token("k3", mask_BT=mask_BT, **log_probs)
    count = int(mask_BT.sum())
    return {
        name: CountedMean(float(token_mean(column_BT, mask_BT)), count=count)
        for name, column_BT in values_BT.items()
        if column_BT is not None and count
    }
