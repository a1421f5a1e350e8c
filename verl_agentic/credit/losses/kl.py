"""Estimators of the KL divergence to a reference policy: p = log pi and q = log pi_ref of the sampled tokens.

    k1 = p - q                    unbiased value; as a loss its gradient is 1 for every token, so it has no effect
    k2 = (p - q)^2 / 2            its gradient p - q is that of the KL, on samples of the policy itself
    k3 = e^(q - p) - (q - p) - 1  never negative; its gradient 1 - e^(q - p) is not that of the KL
    k3_is                         k3 weighted by pi / pi_old; its gradient is that of the KL, off policy too
    trajectory                    sum of k1 over the row; its gradient is that of the KL of whole rows

B rows, T response tokens; masked tokens are exactly 0 in value and gradient.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.aggregate import masked
from verl_agentic.credit.losses.ppo import MAX_LOG_RATIO, log_ratios

Estimator = Literal["k1", "k2", "k3", "k3_is", "trajectory"]

MAX_K3 = 10.0
"""verl's bound of k3; a token above it has no gradient."""


def kl_per_token(
    estimator: Estimator, *, log_prob_BT: Tensor, ref_log_prob_BT: Tensor, old_log_prob_BT: Tensor, mask_BT: Tensor
) -> Tensor:
    """Returns `[B, T]` float32: an estimate of the KL at every sampled token.

    `k3_is` is `rho k3` with `rho = pi / pi_old`. Its gradient `rho (p - q)` is computed directly, not as a difference
    of two large terms.

    Args:
        estimator: tokens of `trajectory` have the value of k1, so a row sums to `trajectory_kl`. The gradient of each
            token is that sum, clamped to 10.
        log_prob_BT: `[B, T]` float: p.
        ref_log_prob_BT: `[B, T]` float: q.
        old_log_prob_BT: `[B, T]` float: used by `k3_is` only.

    Raises:
        ConfigError: unknown estimator.

    Paper: k1, k2, k3 http://joschu.net/blog/kl-approx.html; k3_is https://arxiv.org/abs/2512.02556
    """
    difference_BT = masked(log_prob_BT.float() - ref_log_prob_BT.float(), mask_BT)
    if estimator == "k1":
        return difference_BT
    if estimator == "k2":
        return 0.5 * difference_BT.square()
    if estimator == "k3":
        return _estimate_k3(difference_BT).clamp(max=MAX_K3)
    if estimator == "k3_is":
        ratio_BT = log_ratios(log_prob_BT, old_log_prob_BT, mask_BT).detach().exp()
        with_gradient_BT = 0.5 * ratio_BT * difference_BT.square()
        value_BT = ratio_BT * _estimate_k3(difference_BT.detach())
        return with_gradient_BT - with_gradient_BT.detach() + value_BT
    if estimator == "trajectory":
        total_B = trajectory_kl(log_prob_BT, ref_log_prob_BT, mask_BT).detach().clamp(-MAX_K3, MAX_K3)
        with_gradient_BT = total_B.unsqueeze(-1) * difference_BT
        return with_gradient_BT - with_gradient_BT.detach() + difference_BT.detach()
    raise ConfigError(f"unknown KL estimator, got {estimator!r}; use one of {get_args(Estimator)}")


def trajectory_kl(log_prob_BT: Tensor, ref_log_prob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B]` float32: k1 summed over the sampled tokens of every row.

    It grows with the length of the trajectory, unlike the mean of the per-token estimators.
    """
    return masked(log_prob_BT.float() - ref_log_prob_BT.float(), mask_BT).sum(dim=-1)


def sequence_k3(log_prob_BT: Tensor, ref_log_prob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B]` float32: k3 of the probabilities of whole rows, `e^d - d - 1` with `d = sum(q - p)`."""
    return _estimate_k3(trajectory_kl(log_prob_BT, ref_log_prob_BT, mask_BT)).clamp(max=MAX_K3)


def _estimate_k3(difference: Tensor) -> Tensor:
    clamped = (-difference).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return clamped.expm1() - clamped
