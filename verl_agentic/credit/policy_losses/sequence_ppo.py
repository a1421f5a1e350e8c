"""PPO on the probability of the whole trajectory."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import row_means, token_mean
from verl_agentic.credit.losses.kl import sequence_k3
from verl_agentic.credit.losses.ppo import MAX_LOG_RATIO, clip_objective, log_ratios
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(name="actor/row_ref_kl", unit="nats", per="row, mean of micro-batches", rows="rows with sampled tokens"),
)


@policy_loss()
def sequence_ppo(batch: LossBatch, *, kl_coef: float = 0.0) -> Loss:
    """Returns `-min(rho A, clip(rho) A) + kl_coef k3` per row, with `rho = pi(o|q) / pi_old(o|q)` of the whole row.

    This is DeepSeek-R1's printed objective. `rho` is the product of the tokens' ratios (in verl's `gspo`, their
    geometric mean), so long rows leave the clip range after small changes. Public implementations use the token-level
    form, `masked_ppo`. k3 also uses the row's probability. `actor.loss_agg_mode` has no effect.

    Advantages and importance weights of a row are means over its sampled tokens. The bound of negative advantages (dual
    clip) is verl's. A row without sampled tokens has loss 0.

    Metrics: `pg_clipfrac` and `row_ref_kl` are means over rows with sampled tokens, `ppo_kl` is a mean over tokens.

    Args:
        kl_coef: weight of the KL to the reference policy.

    Raises:
        ConfigError: `kl_coef` is set, but there are no reference log-probs.

    Paper: https://arxiv.org/abs/2501.12948 (eq. 1, 2)
    """
    mask_BT = batch.mask_BT
    # The sum of clamped tokens needs clamping again.
    log_ratio_BT = log_ratios(batch.log_prob_BT, batch.old_log_prob_BT, mask_BT)
    log_ratio_B = log_ratio_BT.sum(dim=-1).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    clipped = clip_objective(
        log_ratio_B.exp(),
        row_means(batch.advantages_BT, mask_BT),
        low=batch.clip_low,
        high=batch.clip_high,
        dual=batch.clip_dual,
    )
    loss_B = clipped.loss
    if batch.is_weights_BT is not None:
        loss_B = loss_B * row_means(batch.is_weights_BT, mask_BT)
    is_sampled_B = mask_BT.any(dim=-1)
    metrics = {
        "pg_clipfrac": token_mean(clipped.is_clipped, is_sampled_B),
        "pg_clipfrac_lower": token_mean(clipped.is_dual_clipped, is_sampled_B),
        "ppo_kl": token_mean(-log_ratio_BT, mask_BT),
    }
    if kl_coef:
        if batch.ref_log_prob_BT is None:
            raise ConfigError(
                f"sequence_ppo with kl_coef={kl_coef} needs reference log-probs, got none; set actor.use_kl_loss=true"
            )
        kl_B = sequence_k3(batch.log_prob_BT, batch.ref_log_prob_BT, mask_BT)
        loss_B = loss_B + kl_coef * kl_B
        metrics["row_ref_kl"] = token_mean(kl_B, is_sampled_B)
    return Loss(per_row_B=loss_B, metrics=metrics)
