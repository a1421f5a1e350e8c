"""Health of a batch before training: lengths, spread of rewards and their parts, age of its log-probs.

Axes as in `credit/credit/batch.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from verl_agentic.base.metric import CountedMean, Metric
from verl_agentic.credit.batch_metrics.diversity import diversity
from verl_agentic.credit.credit.batch import CreditBatch, row_blocks
from verl_agentic.credit.credit.group_health import group_health
from verl_agentic.credit.credit.group_statistics import group_counts, group_means, group_stds

_WEIGHTED = "weighted/"
_LAST_TURN = 4
_RIGHT = 1.0 - 1e-9
_GOES_WITH = 0.5
_MAX_LOG_RATIO = 20.0
_SHARED = ("zero_signal_group_frac", "all_0_group_frac", "all_1_group_frac", "void_session_frac")
_TOKENS, _SESSIONS = "sampled tokens of valid rows", "valid sessions"
METRICS = (
    Metric(name="batch/void_session_frac", unit="share", per="session", rows="sessions"),
    Metric(name="batch/*_group_frac", unit="share", per="group", rows="groups"),
    Metric(name="batch/reward_std", unit="reward", per="session", rows=_SESSIONS),
    Metric(name="batch/within_group_std", unit="reward", per="group", rows="groups with two valid sessions"),
    Metric(name="batch/distinct_*share", unit="share", per="group", rows="groups with two valid sessions"),
    Metric(name="batch/length_reward_corr", unit="correlation", per="session", rows=_SESSIONS),
    Metric(name="batch/wrong_length", unit="tokens", per="session", rows="valid sessions with the outcome 0"),
    Metric(name="batch/right_length", unit="tokens", per="session", rows="valid sessions with the outcome 1"),
    Metric(name="batch/outcome_share", unit="share of the variance", per="session", rows=_SESSIONS),
    Metric(name="batch/shaping_share/*", unit="share of the variance", per="session", rows=_SESSIONS),
    Metric(name="batch/log_prob_diff/max", unit="nats", per="token", rows=_TOKENS, join="max"),
    Metric(name="batch/log_prob_diff/*", unit="nats", per="token", rows=_TOKENS),
    Metric(name="batch/approx_kl", unit="nats", per="token", rows=_TOKENS),
    Metric(name="batch/reward_off_mask", unit="reward", per="step", rows="all rows", join="sum"),
)


def batch_health(
    batch: CreditBatch, *, outcomes: Collection[str] = (), raw_rewards_BT: Tensor | None = None
) -> dict[str, float]:
    """Returns `batch/*`, the metrics that alarms read. Undefined ones are left out.

    - `zero_signal_group_frac`, `all_0_group_frac`, `all_1_group_frac`, `void_session_frac`: see `group_health`.
    - `reward_std`: of valid sessions; `within_group_std`: its mean over groups of two valid sessions or more (both of
      the population).
    - `distinct_share`, `distinct_action_share`: see `diversity`.
    - `length_reward_corr`: correlation of sampled tokens and reward over valid sessions, as deviations from the group's
      means, because hard prompts have long answers and low rewards. Without centring if no group has two.
    - `wrong_length`, `right_length`: mean sampled tokens of sessions with the outcome (`acc`) 0, and 1.
    - `outcome_share`, `shaping_share/<part>`: share of each part in the variance of the reward, `cov(part, reward) /
      var(reward)`; the shares sum to 1 if the parts sum to the reward. Outcome parts are those named, or those whose
      correlation with `acc` is 0.5 or more.
    - `log_prob_diff/mean`, `/max`, `/turn_0` to `/turn_3`, `/turn_4_plus`: |log pi_train - log pi_rollout| over sampled
      tokens, by turn of the row.
    - `approx_kl`: mean of (rho - 1) - ln rho over sampled tokens, rho = pi_train / pi_rollout.
    - `reward_off_mask`: sum of |reward| on tokens that were not sampled; only if raw rewards are given.

    Args:
        outcomes: names of the outcome parts, without `weighted/`; empty: chosen by correlation.
        raw_rewards_BT: `[B, T]` float: rewards before `CreditBatch` removes masked ones.
    """
    metrics = {name: value for name, value in group_health(replace(batch, values_BT=None)).items() if name in _SHARED}
    metrics |= (
        _measure_rewards(batch)
        | _measure_lengths(batch)
        | _measure_parts(batch, outcomes)
        | _measure_log_probs(batch)
        | diversity(batch)
    )
    if raw_rewards_BT is not None:
        metrics["reward_off_mask"] = _off_mask(raw_rewards_BT, batch.mask_BT)
    return {f"batch/{name}": value for name, value in metrics.items() if not math.isnan(value)}


def _off_mask(rewards_BT: Tensor, mask_BT: Tensor) -> float:
    blocks = (
        rewards_BT[rows].float().masked_fill(mask_BT[rows], 0.0).nan_to_num(math.inf) for rows in row_blocks(mask_BT)
    )
    return sum(float(torch.linalg.vector_norm(block_BT, ord=1)) for block_BT in blocks)


def _measure_rewards(batch: CreditBatch) -> dict[str, float]:
    groups = {"valid_N": batch.valid_S, "num_groups": batch.num_groups}
    outcomes_S = batch.outcomes_S.double()
    counts_S = group_counts(batch.group_S, **groups)
    counted_S = batch.valid_S & (counts_S > 1)
    # A session weighs one over the number of its siblings, so that every group weighs the same.
    weights_S = (counted_S / counts_S.clamp(min=1.0)).double()
    stds_S = group_stds(outcomes_S, batch.group_S, ddof=0, **groups)
    valid_N = outcomes_S[batch.valid_S]
    return {
        "reward_std": float(valid_N.std(correction=0)) if len(valid_N) else math.nan,
        "within_group_std": float((stds_S * weights_S).sum() / weights_S.sum()),
    }


def _measure_lengths(batch: CreditBatch) -> dict[str, float]:
    lengths_S = batch.sum_per_session(torch.count_nonzero(batch.mask_BT, dim=-1)).double()
    outcomes_S, valid_S = batch.outcomes_S.double(), batch.valid_S
    groups = {"valid_N": valid_S, "num_groups": batch.num_groups}
    has_siblings_S = valid_S & (group_counts(batch.group_S, **groups) > 1)
    x_S, y_S = lengths_S, outcomes_S
    if bool(has_siblings_S.any()):
        x_S, y_S = (values_S - group_means(values_S, batch.group_S, **groups) for values_S in (x_S, y_S))
        valid_S = has_siblings_S
    metrics = {"length_reward_corr": _compute_correlation(x_S[valid_S], y_S[valid_S])}
    if "acc" in batch.parts:
        acc_S = batch.per_session(batch.parts["acc"].double().to(lengths_S.device))
        for name, is_counted_S in (("wrong_length", acc_S == 0), ("right_length", acc_S >= _RIGHT)):
            counted_N = lengths_S[batch.valid_S & is_counted_S]
            metrics[name] = CountedMean(float(counted_N.mean()), count=len(counted_N))
    return metrics


def _measure_parts(batch: CreditBatch, outcomes: Collection[str]) -> dict[str, float]:
    names = [name for name in batch.parts if name.startswith(_WEIGHTED)]
    reward_N = batch.outcomes_S[batch.valid_S].double()
    variance = float(reward_N.var(correction=0)) if len(reward_N) else 0.0
    # The variance of equal rewards is a rounding error, not exactly 0.
    if not names or variance <= 1e-12 * max(1.0, float(reward_N.square().mean())):
        return {}
    columns = {name: _select_valid(batch, name) for name in [*names, *({"acc"} & set(batch.parts))]}
    metrics = {"outcome_share": 0.0}
    for name in names:
        part, values_N = name.removeprefix(_WEIGHTED), columns[name]
        share = float(((values_N - values_N.mean()) * (reward_N - reward_N.mean())).mean()) / variance
        if part in outcomes or (
            not outcomes and _compute_correlation(values_N, columns.get("acc", reward_N)) >= _GOES_WITH
        ):
            metrics["outcome_share"] += share
        else:
            metrics[f"shaping_share/{part}"] = share
    return metrics


def _select_valid(batch: CreditBatch, name: str) -> Tensor:
    """Returns `[N]` a part of the valid sessions; 0 where it is not known."""
    part_S = batch.per_session(batch.parts[name].double().to(batch.valid_B.device))
    return part_S[batch.valid_S].nan_to_num()


def _measure_log_probs(batch: CreditBatch) -> dict[str, float]:
    if batch.old_log_probs_BT is None or batch.rollout_log_probs_BT is None:
        return {}
    num_bins = _LAST_TURN + 2
    sums_I, counts_I = (torch.zeros(num_bins, dtype=torch.float64, device=batch.mask_BT.device) for _ in range(2))
    kl, greatest = 0.0, 0.0
    for rows in row_blocks(batch.mask_BT):
        mask_BT = batch.mask_BT[rows] & batch.valid_B[rows].unsqueeze(-1)
        if not mask_BT.numel():
            continue
        log_ratio_BT = (batch.old_log_probs_BT[rows].float() - batch.rollout_log_probs_BT[rows].float()).where(
            mask_BT, 0.0
        )
        turn_BT = torch.zeros_like(mask_BT, dtype=torch.int64)
        if batch.turn_ids_BT is not None:
            turn_BT = batch.turn_ids_BT[rows].clamp(max=_LAST_TURN)
        # Tokens that were not sampled have their own bin.
        turn_BT = turn_BT.where(mask_BT, num_bins - 1)
        difference_BT = log_ratio_BT.abs()
        # Sums along rows first: one float32 sum over a million small numbers would lose digits.
        sums_BI = torch.zeros((len(mask_BT), num_bins), device=mask_BT.device).scatter_add_(1, turn_BT, difference_BT)
        sums_I += sums_BI.sum(dim=0, dtype=torch.float64)
        counts_I += torch.bincount(turn_BT.flatten(), minlength=num_bins)
        greatest = max(greatest, float(difference_BT.amax()))
        log_ratio_BT = log_ratio_BT.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
        kl += float((log_ratio_BT.expm1() - log_ratio_BT).sum(dim=-1).sum(dtype=torch.float64))
    sums_I, counts_I = sums_I[:-1], counts_I[:-1]
    num_tokens = float(counts_I.sum())
    if not num_tokens:
        return {}
    metrics = {"log_prob_diff/max": greatest}
    metrics["log_prob_diff/mean"] = CountedMean(float(sums_I.sum()) / num_tokens, count=num_tokens)
    if batch.turn_ids_BT is not None:
        names = [f"turn_{turn}" for turn in range(_LAST_TURN)] + [f"turn_{_LAST_TURN}_plus"]
        bins = zip(names, (sums_I / counts_I).tolist(), counts_I.tolist(), strict=True)
        metrics |= {f"log_prob_diff/{name}": CountedMean(mean, count=count) for name, mean, count in bins}
    return {**metrics, "approx_kl": CountedMean(kl / num_tokens, count=num_tokens)}


def _compute_correlation(x_N: Tensor, y_N: Tensor) -> float:
    """Returns Pearson's coefficient; NaN where one of them does not vary."""
    if not len(x_N):
        return math.nan
    x_N, y_N = x_N - x_N.mean(), y_N - y_N.mean()
    sizes = float(x_N.norm()) * float(y_N.norm())
    return float(x_N @ y_N) / sizes if sizes > 1e-9 else math.nan
