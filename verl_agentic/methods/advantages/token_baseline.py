"""A baseline per sampled token: the siblings' mean return, weighted by the size of their gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.gae import following_rows, returns_to_go, sums_before, trained_tokens
from verl_agentic.credit.credit.group_statistics import group_means

_EPSILON = 1e-8


def score_norms(log_probs_BT: Tensor, sum_pi_squared_BT: Tensor | None) -> Tensor:
    """Returns `[B, T]` float64 squared norms of the gradient of a token's log-prob with respect to the logits.

    `1 - 2 * pi + sum(pi ** 2)`, the sum being over the vocabulary; 0 where rounding makes it negative. If the sum is
    unknown: `(1 - pi) ** 2`, which is right within a factor of 2.
    """
    pi_BT = log_probs_BT.double().clamp(max=0.0).exp()
    if sum_pi_squared_BT is None:
        return (1.0 - pi_BT).square()
    return (1.0 - 2.0 * pi_BT + sum_pi_squared_BT.double()).clamp(min=0.0)


@advantage(
    needs=("old_log_probs_BT",),
    accepts=("sum_pi_squared_BT", "is_weights_BT"),
    compares_siblings=True,
    unless={"keep_alone": True},
)
def token_baseline(batch: CreditBatch, *, keep_alone: bool = False) -> Advantages:
    """Returns `G[n] - b[n]` for every sampled token; n counts the sampled tokens of the session.

    `b[n] = sum(W[n] * G[n]) / sum(W[n])` over the sessions of the group with an n-th sampled token; G are rewards to
    go, and W the sums of `score_norms` over the session's tokens so far. Every session is one chain of its rows. Void
    rows do not count in b and get 0.

    Equals verl's `tir_optimal_token_baseline`, and without observations `optimal_token_baseline` (which compares tokens
    at equal positions of the row). verl's V1 trainer can run neither, because it does not pass `sum_pi_squared`.
    Deviations: 1e-8 is added to every weight instead of their sum, so b is the plain mean if all weights are 0; and
    `keep_alone`.

    Args:
        keep_alone: whether tokens without a counterpart in a sibling get their whole return, as in verl. Otherwise they
            get 0. They are the tokens of singletons, and of the longest session beyond the second longest.

    Paper: https://raw.githubusercontent.com/mlresearch/v306/main/assets/li26hy/li26hy.pdf (Optimal Token Baseline)
    """
    assert batch.old_log_probs_BT is not None
    trained_BT, next_B = trained_tokens(batch), following_rows(batch)
    returns_BT = returns_to_go(batch.rewards_BT, trained_BT, next_B=next_B, gamma=1.0)
    norms_BT = score_norms(batch.old_log_probs_BT, batch.sum_pi_squared_BT)
    if batch.is_weights_BT is not None:
        norms_BT = norms_BT * batch.is_weights_BT.double().square()
    weights_BT = torch.where(trained_BT, norms_BT, 0.0).cumsum(dim=1)
    weights_BT = weights_BT + sums_before(weights_BT[:, -1], next_B).unsqueeze(1) + _EPSILON
    count_B = trained_BT.sum(dim=1)
    rank_BT = trained_BT.long().cumsum(dim=1) - 1 + sums_before(count_B, next_B).unsqueeze(1)
    baseline_BT, is_alone_BT = _compute_baselines(batch, trained_BT, returns_BT, weights_BT, rank_BT)
    alone_BT = returns_BT if keep_alone else torch.zeros_like(returns_BT)
    advantages_BT = torch.where(is_alone_BT, alone_BT, returns_BT - baseline_BT)
    return Advantages(advantages_BT=torch.where(trained_BT, advantages_BT, 0.0).float(), returns_BT=returns_BT)


def _compute_baselines(
    batch: CreditBatch, trained_BT: Tensor, returns_BT: Tensor, weights_BT: Tensor, rank_BT: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns `[B, T]` weighted means of the group at the same rank, and a mask of tokens without a counterpart."""
    lengths_S = batch.sum_per_session(trained_BT.sum(dim=1))
    longest, num_groups = int(lengths_S.max()) if len(lengths_S) else 0, batch.num_groups
    # Counts how many sessions have an n-th token: sums over lengths, from the longest down.
    ended = torch.zeros(num_groups * (longest + 1), dtype=torch.int64, device=rank_BT.device)
    ended.index_add_(0, batch.group_S * (longest + 1) + lengths_S, torch.ones_like(lengths_S))
    count_GN = ended.reshape(num_groups, longest + 1).flip(1).cumsum(dim=1).flip(1)[:, 1:]
    place = torch.where(trained_BT, batch.group_B.unsqueeze(1) * longest + rank_BT, 0).flatten()
    means = group_means(
        returns_BT.flatten(),
        place,
        valid_N=trained_BT.flatten(),
        num_groups=max(num_groups * longest, 1),
        weights_N=weights_BT.flatten(),
    )
    alone = torch.cat([count_GN.flatten() == 1, torch.zeros(1, dtype=torch.bool, device=place.device)])
    return means.reshape(rank_BT.shape), alone[place].reshape(rank_BT.shape)
