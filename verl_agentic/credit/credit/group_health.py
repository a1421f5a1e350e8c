"""Shares of the groups of a batch with and without a training signal."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch


def group_health(batch: CreditBatch) -> dict[str, float]:
    """Returns the shares of groups without a signal and of void sessions. Padding rows are no sessions.

    A group without a signal has two or more valid sessions with equal results. A result is the raw outcome
    `parts["acc"]` if it is known and finite, else the sum of the rewards.

    - `groups`, `sessions`: counts.
    - `zero_signal_group_frac`: of all groups; its parts are `all_0_group_frac`, `all_1_group_frac` and
      `other_constant_group_frac`.
    - `singleton_group_frac`, `void_group_frac`: groups with one valid session, and with none.
    - `void_session_frac`: share of void sessions.
    - `nonfinite_sessions`: number of sessions with a reward that is NaN or infinite.
    - `outcome_mean`: over valid sessions.
    - `value_first_mean`, `value_last_mean`: with a critic, its mean value at the first and the last sampled token of
      valid rows. With one reward at the end and a discount g per step, V(s_t) is about g^(T - t) P(success). So a first
      value near 0 with a good outcome means that the discount is too strong.
    """
    results_S = _select_results(batch)
    counts_G = torch.zeros(batch.num_groups, dtype=torch.int64, device=results_S.device)
    counts_G.index_add_(0, batch.group_S, batch.valid_S.long())
    lowest_G, highest_G = (
        _reduce_groups(results_S, batch, torch.inf, "amin"),
        _reduce_groups(results_S, batch, -torch.inf, "amax"),
    )
    is_constant_G = (counts_G > 1) & (lowest_G == highest_G)
    is_0_G, is_1_G = is_constant_G & (lowest_G == 0), is_constant_G & (lowest_G == 1)
    shares = {
        "zero_signal_group_frac": is_constant_G,
        "all_0_group_frac": is_0_G,
        "all_1_group_frac": is_1_G,
        "other_constant_group_frac": is_constant_G & ~is_0_G & ~is_1_G,
        "singleton_group_frac": counts_G == 1,
        "void_group_frac": counts_G == 0,
    }
    is_real_S = torch.ones_like(batch.valid_S)
    if batch.is_padding_B is not None:
        is_real_S = batch.sum_per_session((~batch.is_padding_B).float()) > 0
    is_real_G = torch.zeros_like(is_constant_G).index_put((batch.group_S[is_real_S],), is_real_S.new_ones(()))
    return {
        "groups": float(is_real_G.sum()),
        "sessions": float(is_real_S.sum()),
        **{name: _mean_or_zero(is_in_share_G[is_real_G]) for name, is_in_share_G in shares.items()},
        "void_session_frac": _mean_or_zero(~batch.valid_S[is_real_S]),
        "nonfinite_sessions": float(batch.num_nonfinite),
        "outcome_mean": _mean_or_zero(batch.outcomes_S[batch.valid_S]),
        **_value_means(batch),
    }


def _select_results(batch: CreditBatch) -> Tensor:
    acc_B = batch.parts.get("acc")
    if acc_B is None:
        return batch.outcomes_S
    acc_S = batch.per_session(acc_B.float())
    return torch.where(acc_S.isfinite(), acc_S, batch.outcomes_S)


def _reduce_groups(results_S: Tensor, batch: CreditBatch, neutral: float, reduce: str) -> Tensor:
    extremes_G = torch.full((batch.num_groups,), neutral, dtype=results_S.dtype, device=results_S.device)
    candidates_S = torch.where(batch.valid_S, results_S, neutral)
    return extremes_G.scatter_reduce(0, batch.group_S, candidates_S, reduce=reduce)


def _mean_or_zero(values: Tensor) -> float:
    return float(values.double().mean()) if values.numel() else 0.0


def _value_means(batch: CreditBatch) -> dict[str, float]:
    if batch.values_BT is None:
        return {}
    mask_NT, values_NT = batch.mask_BT[batch.valid_B], batch.values_BT[batch.valid_B]
    if not len(mask_NT):
        return {}
    ends = {"value_first_mean": mask_NT, "value_last_mean": mask_NT.flip(-1)}
    places = {name: which_NT.view(torch.uint8).argmax(dim=-1, keepdim=True) for name, which_NT in ends.items()}
    places["value_last_mean"] = mask_NT.shape[1] - 1 - places["value_last_mean"]
    return {name: _mean_or_zero(values_NT.gather(1, places_N1)) for name, places_N1 in places.items()}
