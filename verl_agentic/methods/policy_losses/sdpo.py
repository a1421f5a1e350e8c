"""SDPO: distils the policy with feedback in its prompt into the policy without it."""

from __future__ import annotations

import math
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
    Metric(
        name="actor/sdpo_divergence",
        unit="nats",
        per="token, mean of micro-batches",
        rows="tokens with a teacher's log-prob, with `top_tokens`",
    ),
    Metric(name="actor/sdpo_teacher_frac", unit="share", per="token, mean of micro-batches", rows="sampled tokens"),
)
_MAX_LOG_SUM = -1e-7
"""Maximum log of a sum of probabilities: that of a whole vocabulary may round to 1 and more."""


def add_tail(log_prob_K: Tensor) -> Tensor:
    """Returns `[..., K + 1]`: the log-probs, and that of all other tokens together."""
    log_sum = log_prob_K.logsumexp(dim=-1, keepdim=True).clamp(max=_MAX_LOG_SUM)
    return torch.cat([log_prob_K, torch.log(-torch.expm1(log_sum))], dim=-1)


def jensen_shannon(policy_K: Tensor, teacher_K: Tensor, *, alpha: float) -> Tensor:
    """Returns `[...]`: `(1 - alpha) KL(p | m) + alpha KL(q | m)` with `m = (1 - alpha) p + alpha q`.

    p is the policy and q the teacher. As in the authors' code, `alpha` 0 is `KL(q | p)`, and 1 is `KL(p | q)`.

    Args:
        policy_K: `[..., K]` log-probs of p, whose probabilities have the sum 1.
        teacher_K: the same of q.
    """

    def divergence(first_K: Tensor, second_K: Tensor) -> Tensor:
        return (first_K.exp() * (first_K - second_K)).sum(dim=-1)

    if alpha == 0:
        return divergence(teacher_K, policy_K)
    if alpha == 1:
        return divergence(policy_K, teacher_K)
    mixture_K = torch.logaddexp(policy_K + math.log(1 - alpha), teacher_K + math.log(alpha))
    return (1 - alpha) * divergence(policy_K, mixture_K) + alpha * divergence(teacher_K, mixture_K)


@policy_loss(needs=("teacher_log_prob_BT",), uses_advantages=False)
def sdpo(batch: LossBatch, *, is_clip: float = 2.0, alpha: float = 1.0, top_tokens: int = 0) -> Loss:
    """Returns the divergence of policy and teacher per sampled token, times `min(pi / pi_old, is_clip)` (no gradient)
    and `is_weights_BT`.

    With `top_tokens`, it is `jensen_shannon` over the most likely tokens of the policy before the step's updates, and
    all others as one token. Without, it is `sg(log pi - log pi_teacher) log pi` of the sampled token, whose gradient is
    that of the reverse KL. The teacher is the same model, or its moving average as in the paper (`agentic.self_teacher:
    {tau: 0.05}`), whose prompt also has the solution of a sibling, or without one the environment's answers to the
    failed row itself. `log pi_teacher - log pi` is the reward of a token. Advantages have no effect. Tokens without a
    finite teacher log-prob have no loss (metric `sdpo_teacher_frac`).

    Deviations: the authors take the most likely tokens of the policy that is updated. They also divide by the number of
    tokens of rows with feedback only.

    Args:
        is_clip: maximum importance weight, above 0; the default is from the authors' code.
        alpha: from 0, the forward KL, to 1, the reverse KL. The authors' code: 0.5. Sampled tokens alone need 1.
        top_tokens: number of tokens; 0: the sampled ones. The authors' code: 100. Each takes 8 bytes for each token of
            a response in the replay buffer, and the logits of responses are copied in float32.

    Raises:
        ConfigError: an option is out of its range, or the trainer gives no log-probs of the most likely tokens.

    Paper: https://arxiv.org/abs/2601.20802
    """
    if is_clip <= 0:
        raise ConfigError(f"sdpo needs a positive is_clip, got {is_clip}")
    if not 0 <= alpha <= 1 or top_tokens < 0 or (alpha != 1 and not top_tokens):
        raise ConfigError(
            f"sdpo needs alpha from 0 to 1, and top_tokens for an alpha below 1, got alpha={alpha} and "
            f"top_tokens={top_tokens}; change them"
        )
    teacher_BT = cast("Tensor", batch.teacher_log_prob_BT)
    taught_BT = batch.mask_BT & torch.isfinite(teacher_BT)
    student_BT = masked(batch.log_prob_BT, taught_BT)
    gap_BT = student_BT.detach() - masked(teacher_BT, taught_BT)
    weights_BT = log_ratios(batch.log_prob_BT, batch.old_log_prob_BT, taught_BT).detach().exp().clamp(max=is_clip)
    if batch.is_weights_BT is not None:
        weights_BT = weights_BT * masked(batch.is_weights_BT, taught_BT)
    metrics = {"sdpo_reward": token_mean(-gap_BT, taught_BT), "sdpo_teacher_frac": token_mean(taught_BT, batch.mask_BT)}
    if not top_tokens:
        return Loss(per_token_BT=weights_BT * gap_BT * student_BT, metrics=metrics)
    divergence_BT = _diverge(batch, taught_BT, alpha=alpha)
    metrics["sdpo_divergence"] = token_mean(divergence_BT.detach(), taught_BT)
    return Loss(per_token_BT=weights_BT * divergence_BT, metrics=metrics)


def _diverge(batch: LossBatch, taught_BT: Tensor, *, alpha: float) -> Tensor:
    """Returns `[B, T]`: the divergence over the most likely tokens; 0 without gradient where nothing is taught."""
    columns = (batch.top_log_prob_BTK, batch.teacher_top_log_prob_BTK)
    if any(column is None for column in columns):
        raise ConfigError(
            "sdpo with top_tokens needs log-probs of the most likely tokens, got none; take a trainer agentic_* and an "
            "FSDP engine, or set top_tokens=0"
        )
    policy_BTK, teacher_BTK = (cast("Tensor", column).float() for column in columns)
    # The same distribution on both sides where nothing is taught.
    filler = -math.log(2 * policy_BTK.shape[-1])
    policy_K, teacher_K = (add_tail(torch.where(taught_BT[..., None], p, filler)) for p in (policy_BTK, teacher_BTK))
    return masked(jensen_shannon(policy_K, teacher_K, alpha=alpha), taught_BT)
