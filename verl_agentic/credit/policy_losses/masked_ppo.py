"""PPO's clipped loss with the mask inside the ratio, and a choice of KL terms."""

from __future__ import annotations

from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import token_mean
from verl_agentic.credit.losses.kl import Estimator, kl_per_token
from verl_agentic.credit.losses.ppo import ppo_surrogate
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (Metric(name="actor/ref_kl", unit="nats", per="token, mean of micro-batches", rows="sampled tokens"),)


@policy_loss()
def masked_ppo(batch: LossBatch, *, kl: Literal["none"] | Estimator = "none", kl_coef: float = 0.001) -> Loss:
    """Returns `-min(rho A, clip(rho, 1 - low, 1 + high) A)` per sampled token, plus `kl_coef` times a KL estimate.

    With `kl=none` it equals verl's `vanilla` in value and gradient. The ratio of observations is 1, so their log-probs
    (even NaN) affect no metric. With `is_weights_BT` (verl's rollout correction) it is decoupled PPO: `(pi_old /
    pi_rollout) min(...)` with `rho = pi / pi_old`.

    verl's own KL term (`actor.use_kl_loss`) is added to this one. To use `kl` here, set `use_kl_loss=true` for the
    reference log-probs, and `kl_loss_coef=0`.

    Args:
        kl: estimator of the divergence from the reference policy, see `credit/losses/kl.py`. verl lacks `k3_is` and
            `trajectory`.
        kl_coef: weight of the KL term; the default is verl's.

    Raises:
        ConfigError: `kl` is set, but there are no reference log-probs.

    Paper: https://arxiv.org/abs/1707.06347; clip-higher https://arxiv.org/abs/2503.14476
    """
    surrogate = ppo_surrogate(batch)
    if kl == "none":
        return Loss(per_token_BT=surrogate.per_token_BT, metrics=surrogate.metrics)
    if batch.ref_log_prob_BT is None:
        raise ConfigError(f"masked_ppo has kl={kl!r}, but no reference log-probs; set actor.use_kl_loss=true")
    kl_BT = kl_per_token(
        kl,
        log_prob_BT=batch.log_prob_BT,
        ref_log_prob_BT=batch.ref_log_prob_BT,
        old_log_prob_BT=batch.old_log_prob_BT,
        mask_BT=batch.mask_BT,
    )
    metrics = {**surrogate.metrics, "ref_kl": token_mean(kl_BT, batch.mask_BT)}
    return Loss(per_token_BT=surrogate.per_token_BT + kl_coef * kl_BT, metrics=metrics)
