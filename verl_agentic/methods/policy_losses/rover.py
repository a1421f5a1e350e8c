"""ROVER: regresses the log-ratio, as a Q-value, on the value of a uniform policy."""

from __future__ import annotations

from typing import cast

import torch

from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import Tensor, masked, token_mean
from verl_agentic.credit.losses.ppo import log_ratios
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(name="actor/rover_q", unit="nats", per="token, mean of micro-batches", rows="sampled tokens"),
    Metric(name="actor/rover_target", unit="nats", per="token, mean of micro-batches", rows="sampled tokens"),
)


def at_next_sampled(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B, T]` float32: the value at the next sampled token; 0 after the last one."""
    width = mask_BT.shape[1]
    positions_BT = torch.where(mask_BT, torch.arange(width, device=mask_BT.device), width)
    # Nearest sampled position at or after each token, read one position to the right.
    nearest_BT = positions_BT.flip(-1).cummin(dim=-1).values.flip(-1)
    next_BT = torch.nn.functional.pad(nearest_BT[:, 1:], (0, 1), value=width)
    padded_BT = torch.nn.functional.pad(masked(values_BT, mask_BT), (0, 1))
    return padded_BT.gather(1, next_BT)


@policy_loss(needs=("mean_log_ratio_BT",))
def rover(batch: LossBatch, *, bootstrap: float = 1.0) -> Loss:
    """Returns `(q_t - target_t)^2` per sampled token, without gradient through the target.

        q_t = log pi - log pi_old of the token
        target_t = A_t + bootstrap mean_a (log pi(a|s') - log pi_old(a|s')) with the next state s'

    Use it with the estimator `dr_grpo`. The sign of the mean is that of the authors' code. Nothing is clipped.

    Deviations: s' is at the next sampled token, after observations if there are any; the authors have one turn only.
    After the last token the mean is 0.

    Args:
        bootstrap: weight of the value of the next state (the paper's rho).

    Paper: https://arxiv.org/abs/2509.24981
    """
    mask_BT = batch.mask_BT
    q_BT = log_ratios(batch.log_prob_BT, batch.old_log_prob_BT, mask_BT)
    next_BT = at_next_sampled(cast("Tensor", batch.mean_log_ratio_BT).detach(), mask_BT)
    target_BT = masked(batch.advantages_BT, mask_BT) + bootstrap * next_BT
    metrics = {"rover_q": token_mean(q_BT, mask_BT), "rover_target": token_mean(target_BT, mask_BT)}
    return Loss(per_token_BT=masked((q_BT - target_BT).square(), mask_BT), metrics=metrics)
