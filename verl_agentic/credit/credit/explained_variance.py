"""Explained variance of a critic: B rows of N places (tokens or turns), of which some exist."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.gae import returns_to_go, scan, trained_tokens


def explained_variance(values_BN: Tensor, returns_BN: Tensor, exists_BN: Tensor) -> float:
    """Returns `1 - Var(returns - values) / Var(returns)` over the places that exist.

    1: perfect; 0: as good as a constant; below 0: worse. NaN if returns do not vary. verl's `critic/vf_explained_var`
    adds 1e-5 to the variance instead, and uses the estimator's targets, which contain the values if lambda is below 1.
    """
    total, scale = _sum_squares(returns_BN, exists_BN)
    errors, _ = _sum_squares(returns_BN - values_BN, exists_BN)
    # The variance of equal numbers is a rounding error, not exactly 0.
    return 1.0 - errors / total if total > 1e-10 * scale else math.nan


def critic_metrics(
    batch: CreditBatch, values_BN: Tensor, rewards_BN: Tensor, exists_BN: Tensor, *, next_B: Tensor, gamma: float
) -> dict[str, float]:
    """Returns the metrics of a critic; undefined ones are left out.

    - `credit/explained_variance`: of the discounted rewards to go (not of lambda-returns).
    - `credit/explained_variance_clock`: the same for `gamma ** places_left * mean_outcome`. A critic that is not better
      has only learnt to count steps. Only if gamma is below 1.

    Args:
        batch: for outcomes.
        gamma: discount per place.
    """
    returns_BN = returns_to_go(rewards_BN, exists_BN, next_B=next_B, gamma=gamma)
    metrics = {"credit/explained_variance": explained_variance(values_BN, returns_BN, exists_BN)}
    if gamma < 1.0:
        left_BN = scan(exists_BN.float(), torch.ones_like(values_BN), next_B=next_B) - 1.0
        mean = float(batch.outcomes_S[batch.valid_S].mean()) if bool(batch.valid_S.any()) else 0.0
        clock_BN = mean * torch.full_like(left_BN, gamma) ** left_BN
        metrics["credit/explained_variance_clock"] = explained_variance(clock_BN, returns_BN, exists_BN)
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def token_critic_metrics(batch: CreditBatch, returns_BT: Tensor) -> dict[str, float]:
    """Returns `credit/explained_variance` over sampled tokens for returns `[B, T]`; empty if it is undefined."""
    assert batch.values_BT is not None
    value = explained_variance(batch.values_BT.float(), returns_BT, trained_tokens(batch))
    return {} if math.isnan(value) else {"credit/explained_variance": value}


def _sum_squares(values_BN: Tensor, exists_BN: Tensor) -> tuple[float, float]:
    """Returns the sums of squares about the mean and about 0."""
    values_BN = torch.where(exists_BN, values_BN, 0.0)
    # Row sums are float64; a whole float64 matrix would dominate the run time.
    mean = values_BN.sum(dim=-1).double().sum() / exists_BN.sum().clamp(min=1)
    centred_BN = torch.where(exists_BN, values_BN - mean, 0.0)
    squares = [torch.linalg.vector_norm(x_BN, dim=-1).double().square().sum() for x_BN in (centred_BN, values_BN)]
    return float(squares[0]), float(squares[1])
