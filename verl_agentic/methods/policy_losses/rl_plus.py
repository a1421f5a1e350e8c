"""RL-PLUS: PPO for the policy's own rows, multiple importance sampling for demonstrations."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import Tensor, masked, token_mean
from verl_agentic.credit.losses.ppo import ppo_surrogate
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(
        name="actor/external_ratio_mean",
        unit="ratio",
        per="token, mean of micro-batches",
        rows="tokens of external rows",
    ),
    Metric(name="actor/external_frac", unit="share", per="token, mean of micro-batches", rows="sampled tokens"),
)


def external_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Returns `2 pi / (pi_old + omega)` with `omega = (pi_old + 1) / 2`; float, any shape.

    omega approximates the unknown policy of the demonstrations: half the old policy, half 1.
    """
    old_prob = old_log_prob.float().exp()
    return 2 * log_prob.float().exp() / (old_prob + 0.5 * (old_prob + 1))


def exploration_advantage(advantages: Tensor, log_prob: Tensor, *, exponent: float = 0.5) -> Tensor:
    """Returns `A (1 - pi)^exponent`, without gradient. Likely tokens get less advantage."""
    doubt = (1 - log_prob.detach().float().exp()).clamp(min=0)
    return advantages.float() * doubt**exponent


@policy_loss(needs=("is_external_B",))
def rl_plus(batch: LossBatch, *, exponent: float = 0.5) -> Loss:
    """Returns `-ratio A_ext` for tokens of external rows, not clipped, and `masked_ppo` for the policy's own.

    `is_weights_BT` and PPO's metrics apply to own rows only. Own rows are clipped as in verl (`clip_ratio_low`,
    `_high`, `_c`); the authors' code has one clip and no bound for negative advantages.

    Args:
        exponent: of `1 - pi` in the advantage; the default is from the authors' code.

    Paper: https://arxiv.org/abs/2508.00222
    """
    is_external_B1 = cast("Tensor", batch.is_external_B).bool().unsqueeze(-1)
    external_BT, own_BT = batch.mask_BT & is_external_B1, batch.mask_BT & ~is_external_B1
    own_surrogate = ppo_surrogate(replace(batch, mask_BT=own_BT))
    log_prob_BT = masked(batch.log_prob_BT, external_BT)
    ratio_BT = external_ratio(log_prob_BT, masked(batch.old_log_prob_BT, external_BT))
    advantages_BT = masked(batch.advantages_BT, external_BT)
    external_loss_BT = -ratio_BT * exploration_advantage(advantages_BT, log_prob_BT, exponent=exponent)
    metrics = {
        **own_surrogate.metrics,
        "external_ratio_mean": token_mean(ratio_BT, external_BT),
        "external_frac": token_mean(external_BT, batch.mask_BT),
    }
    return Loss(per_token_BT=external_loss_BT + own_surrogate.per_token_BT, metrics=metrics)
