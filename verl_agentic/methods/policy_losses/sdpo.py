"""SDPO: distils the policy with feedback in its prompt into the policy without it."""

from __future__ import annotations

from typing import cast

import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import Tensor, masked, token_mean
from verl_agentic.credit.losses.ppo import log_ratios
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(
        name="actor/sdpo_reward",
        unit="nats",
        per="token, mean of micro-batches",
        rows="tokens with a teacher's log-prob",
    ),
    Metric(name="actor/sdpo_teacher_frac", unit="share", per="token, mean of micro-batches", rows="sampled tokens"),
)


@policy_loss(needs=("teacher_log_prob_BT",), uses_advantages=False)
def sdpo(batch: LossBatch, *, is_clip: float = 2.0) -> Loss:
    """Returns `sg(log pi - log pi_teacher) log pi` per sampled token, times `min(pi / pi_old, is_clip)` (no gradient).

    The gradient is that of the reverse KL from the policy to the teacher. The teacher is the same model, or its moving
    average as in the paper (`agentic.self_teacher: {tau: 0.05}`), whose prompt also has the solution of a sibling, or
    without one the environment's answers to the failed row itself. `log pi_teacher - log pi` is the reward of a token.
    Advantages have no effect. Tokens without a finite teacher log-prob have no loss (metric `sdpo_teacher_frac`).

    Deviations: this is the authors' form for sampled tokens (`alpha=1`, no logits). Their default distils the teacher's
    100 most likely tokens with `alpha=0.5`, which needs logits. They also divide by the number of tokens of rows with
    feedback only.

    Args:
        is_clip: maximum importance weight, above 0; the default is from the authors' code.

    Raises:
        ConfigError: `is_clip` is not positive.

    Paper: https://arxiv.org/abs/2601.20802
    """
    if is_clip <= 0:
        raise ConfigError(f"sdpo needs a positive is_clip, got {is_clip}")
    teacher_BT = cast("Tensor", batch.teacher_log_prob_BT)
    taught_BT = batch.mask_BT & torch.isfinite(teacher_BT)
    student_BT = masked(batch.log_prob_BT, taught_BT)
    gap_BT = student_BT.detach() - masked(teacher_BT, taught_BT)
    weights_BT = log_ratios(batch.log_prob_BT, batch.old_log_prob_BT, taught_BT).detach().exp().clamp(max=is_clip)
    metrics = {"sdpo_reward": token_mean(-gap_BT, taught_BT), "sdpo_teacher_frac": token_mean(taught_BT, batch.mask_BT)}
    return Loss(per_token_BT=weights_BT * gap_BT * student_BT, metrics=metrics)
