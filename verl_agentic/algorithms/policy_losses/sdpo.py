"""SDPO: the policy learns from itself, told afterwards what went wrong."""

from __future__ import annotations

from typing import cast

import torch

from verl_agentic.algorithms.aggregate import Tensor, as_floats, masked, token_mean
from verl_agentic.algorithms.losses.ppo import log_ratios
from verl_agentic.algorithms.policy_loss import Loss, LossBatch, policy_loss
from verl_agentic.errors import ConfigError


@policy_loss(needs=("teacher_log_prob_BT",), uses_advantages=False)
def sdpo(batch: LossBatch, *, is_clip: float = 2.0) -> Loss:
    """Returns `sg(log pi - log pi_teacher) log pi` per sampled token, times `min(pi / pi_old, is_clip)` (no gradient).

    The gradient is that of the reverse KL from the policy to the teacher, the same model (or its moving average, as the
    authors take it: `agentic.self_teacher: {tau: 0.05}`) whose prompt also has the feedback or a solution:
    `log pi_teacher - log pi` is the reward of a token. Advantages have no effect. Where the teacher's log-prob is not
    finite there was no feedback: no loss there (metric `sdpo_teacher_frac`).

    Deviation: this is the authors' form for sampled tokens (`alpha=1`, no logits); their default distils the teacher's
    100 likeliest tokens at `alpha=0.5`, for which a loss would need logits. They also leave rows without feedback out
    of the number of tokens by which they divide.

    Args:
        is_clip: bound of the importance weight, above 0; the authors' code.

    Raises:
        ConfigError: a bound that is not positive.

    Paper: https://arxiv.org/abs/2601.20802
    """
    if is_clip <= 0:
        raise ConfigError(f"sdpo needs a positive is_clip, got {is_clip}")
    teacher_BT = cast("Tensor", batch.teacher_log_prob_BT)
    taught_BT = batch.mask_BT & torch.isfinite(teacher_BT)
    student_BT = masked(batch.log_prob_BT, taught_BT)
    gap_BT = student_BT.detach() - masked(teacher_BT, taught_BT)
    weights_BT = log_ratios(batch.log_prob_BT, batch.old_log_prob_BT, taught_BT).detach().exp().clamp(max=is_clip)
    metrics = {
        "sdpo_reward": token_mean(-gap_BT, taught_BT),
        "sdpo_teacher_frac": token_mean(taught_BT, batch.mask_BT),
    }
    return Loss(per_token_BT=weights_BT * gap_BT * student_BT, metrics=as_floats(metrics))
