"""Backward recursions over places (tokens or turns) of rows, continued over the rows of a session.

Places that do not exist (observations, padding, missing turns) are skipped; their values have no influence, even NaN.
The value after an episode's last place is 0.

Axes: B rows, N places of a row (its T tokens, or its K turns), T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch

_LARGEST = 1e30


def trained_tokens(batch: CreditBatch) -> Tensor:
    """Returns `[B, T]` bool: true on the sampled tokens of valid rows."""
    return batch.mask_BT & batch.valid_B.unsqueeze(-1)


def where_known(column_BN: Tensor, exists_BN: Tensor) -> Tensor:
    """Returns `[B, N]` float32: the column, with 0 at places that do not exist.

    Values are clamped to 1e30, so that their sums stay finite.
    """
    return torch.where(exists_BN, column_BN.float(), 0.0).clamp_(-_LARGEST, _LARGEST)


def following_rows(batch: CreditBatch) -> Tensor:
    """Returns `[B]` int64: the next row of the session; -1 for its last row and for void rows.

    Rows outside of the chain of their session (`CreditBatch.is_chained_B`) are left out.
    """
    count, device = len(batch.session_B), batch.session_B.device
    none_B = torch.full((count,), -1, dtype=torch.int64, device=device)
    if batch.num_sessions == count:
        return none_B
    is_valid_B = batch.is_chained_B
    session_B = torch.where(is_valid_B, batch.session_B, batch.num_sessions)
    sorted_B = batch.order_B.argsort(stable=True)
    sorted_B = sorted_B[session_B[sorted_B].argsort(stable=True)]
    goes_on = (session_B[sorted_B][1:] == session_B[sorted_B][:-1]) & is_valid_B[sorted_B][1:]
    return none_B.scatter(0, sorted_B[:-1], torch.where(goes_on, sorted_B[1:], -1))


def carried(first_B: Tensor, factor_B: Tensor, next_B: Tensor) -> Tensor:
    """Returns `[B]` x with `x = (first + factor * x)[next]`; 0 for rows without a next row."""
    is_live_B, place_B = next_B >= 0, next_B.clamp(min=0)
    has_next_B, x_B = is_live_B, torch.zeros_like(first_B)
    while bool(is_live_B.any()):
        x_B = torch.where(has_next_B, (first_B + factor_B * x_B)[place_B], torch.zeros_like(x_B))
        is_live_B = is_live_B & is_live_B[place_B]
    return x_B


def sums_before(values_B: Tensor, next_B: Tensor) -> Tensor:
    """Returns `[B]` sums over the earlier rows of the session."""
    place_B = torch.arange(len(next_B), device=next_B.device)
    # Rows without a next row write to an extra place, which is cut off.
    previous_B = torch.full((len(next_B) + 1,), -1, dtype=torch.int64, device=next_B.device)
    previous_B = previous_B.scatter(0, torch.where(next_B >= 0, next_B, len(next_B)), place_B)[:-1]
    return carried(values_B, torch.ones_like(values_B), previous_B)


def scan(deltas_BN: Tensor, decays_BN: Tensor, *, next_B: Tensor) -> Tensor:
    """Returns `[B, N]` x with `x[n] = deltas[n] + decays[n] * x[n + 1]`.

    A row's last place is followed by the first place of the session's next row, else by 0. A place with delta 0 and
    decay 1 has no effect.
    """
    # Transposed, because a step over a column of [B, N] would touch one cache line per row.
    delta_N, decay_N = deltas_BN.t().contiguous().unbind(0), decays_BN.t().contiguous().unbind(0)
    x_NB = torch.empty(deltas_BN.shape[::-1], dtype=deltas_BN.dtype, device=deltas_BN.device)
    x_N, later_B = x_NB.unbind(0), torch.zeros_like(deltas_BN[:, 0])
    for n in reversed(range(len(x_N))):
        later_B = torch.addcmul(delta_N[n], decay_N[n], later_B, out=x_N[n])
    x_BN = x_NB.t().contiguous()
    if not bool((next_B >= 0).any()):
        return x_BN
    # The recursion is linear in the value after the row.
    factor_BN = decays_BN.flip(1).cumprod(dim=1).flip(1)
    return x_BN + factor_BN * carried(x_BN[:, 0], factor_BN[:, 0], next_B).unsqueeze(1)


def next_values(values_BN: Tensor, exists_BN: Tensor, *, next_B: Tensor) -> Tensor:
    """Returns `[B, N]`: the value of the next place that exists, in this row or the next of its session; else 0."""
    first_B = values_BN.gather(1, _first_place(exists_BN)).squeeze(1)
    later_B = torch.where(next_B >= 0, first_B[next_B.clamp(min=0)], torch.zeros_like(first_B))
    value_N, exists_N = values_BN.t().contiguous().unbind(0), exists_BN.t().contiguous().unbind(0)
    next_NB = torch.empty(values_BN.shape[::-1], dtype=values_BN.dtype, device=values_BN.device)
    next_N = next_NB.unbind(0)
    next_N[-1].copy_(later_B)
    for n in reversed(range(1, len(next_N))):
        torch.where(exists_N[n], value_N[n], next_N[n], out=next_N[n - 1])
    return next_NB.t().contiguous()


def td_errors(rewards_BN: Tensor, values_BN: Tensor, exists_BN: Tensor, *, next_B: Tensor, gamma: float) -> Tensor:
    """Returns `[B, N]` `r + gamma * V' - V`, V' being the next value; 0 at places that do not exist."""
    later_BN = next_values(values_BN, exists_BN, next_B=next_B)
    return torch.where(exists_BN, rewards_BN + gamma * later_BN - values_BN, 0.0)


def returns_to_go(rewards_BN: Tensor, exists_BN: Tensor, *, next_B: Tensor, gamma: float) -> Tensor:
    """Returns `[B, N]` `G = r + gamma * G'`, discounted per place that exists; 0 at the others."""
    rewards_BN = where_known(rewards_BN, exists_BN)
    if gamma == 1.0:
        sums_BN = rewards_BN.flip(1).cumsum(dim=1).flip(1)
        after_B = carried(sums_BN[:, 0], torch.ones_like(sums_BN[:, 0]), next_B)
        return torch.where(exists_BN, sums_BN + after_B.unsqueeze(1), 0.0)
    returns_BN = scan(rewards_BN, torch.where(exists_BN, gamma, 1.0), next_B=next_B)
    return torch.where(exists_BN, returns_BN, 0.0)


def gae(
    rewards_BN: Tensor, values_BN: Tensor, exists_BN: Tensor, *, next_B: Tensor, gamma: float, lam: float | Tensor
) -> Tensor:
    """Returns `[B, N]` generalised advantages: `A = r + gamma * V' - V + gamma * lam * A'`; 0 where `exists_BN` is
    false.

    V' and A' belong to the next place that exists, so observations are not discounted.

    Args:
        values_BN: `[B, N]` float: V of the state before the token (or turn) of this place.
        next_B: `[B]` int64, see `following_rows`.
        gamma: discount per place.
        lam: 0: one-step errors; 1: returns minus values; a number, or `[B, 1]`.

    Paper: https://arxiv.org/abs/1506.02438
    """
    rewards_BN, values_BN = where_known(rewards_BN, exists_BN), where_known(values_BN, exists_BN)
    if gamma == 1.0 and isinstance(lam, float | int) and lam == 1.0:
        return returns_to_go(rewards_BN, exists_BN, next_B=next_B, gamma=1.0) - values_BN
    deltas_BN = td_errors(rewards_BN, values_BN, exists_BN, next_B=next_B, gamma=gamma)
    advantages_BN = scan(deltas_BN, torch.where(exists_BN, gamma * lam, 1.0), next_B=next_B)
    return torch.where(exists_BN, advantages_BN, 0.0)


def whitened(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B, T]` the advantages with mean 0 and variance 1 over the mask, 0 elsewhere; unchanged for one token.

    As verl's `masked_whiten`: each token counts once, the variance is unbiased, and 1e-8 is added to it.
    """
    advantages_BT = where_known(advantages_BT, mask_BT)
    count = mask_BT.sum()
    if count < 2:
        return advantages_BT
    # Subtracts one of the values first, so that equal values give exactly 0.
    shifted_BT = torch.where(mask_BT, advantages_BT - advantages_BT[mask_BT][0], 0.0)
    mean = shifted_BT.sum(dim=-1).double().sum() / count
    centred_BT = torch.where(mask_BT, shifted_BT - mean.float(), 0.0)
    squares = torch.linalg.vector_norm(centred_BT, dim=-1).double().square().sum()
    if not torch.isfinite(squares):  # squares of large numbers, in float32
        squares = centred_BT.double().square().sum()
    return (centred_BT * torch.rsqrt(squares / (count - 1) + 1e-8)).float()


def critic_targets(batch: CreditBatch, targets_BT: Tensor, at_BT: Tensor) -> Tensor:
    """Returns `[B, T]` targets of the critic: the given ones where `at_BT` is true, its own values elsewhere.

    verl's value loss uses all sampled tokens. A target equal to the critic's own value has no gradient, so invalid rows
    do not train the critic. 0 where the mask is 0.
    """
    assert batch.values_BT is not None
    return torch.where(at_BT, targets_BT, where_known(batch.values_BT, batch.mask_BT))


def _first_place(exists_BN: Tensor) -> Tensor:
    """Returns `[B, 1]` int64: the first place that exists; 0 if no place exists."""
    # `argmax` may return any of several maxima. Counting down makes the first place the only maximum.
    down_N = torch.arange(exists_BN.shape[1], 0, -1, device=exists_BN.device, dtype=torch.int32)
    return torch.where(exists_BN, down_N, 0).argmax(dim=1, keepdim=True)
