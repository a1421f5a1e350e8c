"""Runs an estimator, ours or verl's, with the checks that hold for all.

Axes as in `verl_agentic.credit.credit.batch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.metric import Metric
from verl_agentic.base.settings import Settings, setting
from verl_agentic.credit.advantage import AdvantageType
from verl_agentic.credit.credit.batch import Advantages, CreditBatch, last_tokens, last_valid_rows, masked, row_blocks
from verl_agentic.credit.credit.group_health import group_health
from verl_agentic.credit.credit.group_statistics import group_means, group_stds

_EPSILON = 1e-6
METRICS = (
    Metric(name="credit/groups", unit="groups", per="step", rows="groups", join="sum"),
    Metric(name="credit/*sessions", unit="sessions", per="step", rows="sessions", join="sum"),
    Metric(name="credit/*_group_frac", unit="share", per="group", rows="groups"),
    Metric(name="credit/void_session_frac", unit="share", per="session", rows="sessions"),
    Metric(name="credit/outcome_mean", unit="reward", per="session", rows="valid sessions"),
    Metric(name="credit/value_*_mean", unit="reward", per="row", rows="valid rows"),
    Metric(name="credit/abs_advantage_mean", unit="advantage", per="token", rows="sampled tokens of valid rows"),
    Metric(name="credit/*_token_frac", unit="share", per="token", rows="sampled tokens of valid rows"),
    Metric(name="credit/explained_variance*", unit="share of the variance", per="token or step", rows="valid rows"),
    Metric(name="credit/implicit_reward_mean", unit="reward", per="token", rows="sampled tokens"),
    Metric(name="credit/implicit_accuracy", unit="share", per="session", rows="valid sessions with an outcome"),
    Metric(name="credit/*", unit="number of the estimator", per="update", rows="valid rows"),
)


class CreditSettings(Settings):
    """Options of all advantage estimators: the section `agentic.credit`."""

    clip: float | None = setting(None, above=0)
    """Clips advantages to `[-clip, clip]`. None: no clipping. 5 affects only rare outcomes of large groups."""
    by_source: bool = False
    """Z-score outcomes over all sessions of their data source first; see `scaled_by_source`."""
    roles: str = "all"
    """Agents whose tokens get an advantage: `all`, `agent` (of the episode), `sub_agents`, or the sub-agents of one
    role, such as `reviewer` for `DelegateTool(agent="reviewer")`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the estimator."""


def estimate(estimator: AdvantageType, batch: CreditBatch, settings: CreditSettings) -> Advantages:
    """Returns the advantages of a batch, checked and clipped, with metrics.

    Scales rewards by source first. Advantages are set to 0 on masked tokens and void rows, checked to be finite, and
    clipped last. Without a critic the returns are the clipped advantages.

    Metrics, all under `credit/`: those of the estimator; those of `group_health`, on the rewards before scaling;
    `abs_advantage_mean` over sampled tokens of valid rows, and `clipped_token_frac` of them; `role_token_frac` of them
    if one role is trained.

    Raises:
        ConfigError: an option is unknown, or the batch lacks a column.
        DataError: advantages or returns are not finite or have a wrong shape.
    """
    estimates = estimator(scaled_by_source(batch) if settings.by_source else batch, **settings.options)
    advantages_BT = _zero_masked(estimates.advantages_BT, batch, f"advantages of {estimator.name!r}")
    if settings.roles != "all":
        # After the estimator: the outcome of the episode stays the baseline of its siblings.
        advantages_BT = masked(advantages_BT, batch.tokens_of(settings.roles))
    has_critic = estimates.returns_BT is not estimates.advantages_BT
    returns_BT = _make_targets(estimates.returns_BT, batch, estimator.name) if has_critic else advantages_BT
    sums_B = torch.linalg.vector_norm(advantages_BT, ord=1, dim=-1)
    _refuse_nonfinite(advantages_BT, sums_B, f"advantages of {estimator.name!r}")
    if has_critic:
        _refuse_nonfinite(returns_BT, returns_BT.sum(dim=-1), f"returns of {estimator.name!r}")
    num_tokens = max(_num_tokens(batch), 1)
    num_clipped = 0
    if settings.clip is not None:
        num_clipped = _num_beyond(advantages_BT, settings.clip)
        if num_clipped:
            advantages_BT = advantages_BT.clamp(-settings.clip, settings.clip)
            sums_B = torch.linalg.vector_norm(advantages_BT, ord=1, dim=-1)
    metrics = {
        **estimates.metrics,
        **group_health(batch),
        "abs_advantage_mean": float(sums_B.double().sum()) / num_tokens,
        "clipped_token_frac": num_clipped / num_tokens,
        **_share_of_role(batch, settings.roles, num_tokens=num_tokens),
    }
    return Advantages(
        advantages_BT=advantages_BT,
        returns_BT=returns_BT if has_critic else advantages_BT,
        metrics={f"credit/{name.removeprefix('credit/')}": float(value) for name, value in metrics.items()},
    )


def _share_of_role(batch: CreditBatch, role: str, *, num_tokens: int) -> dict[str, float]:
    """Returns the share of the sampled tokens of valid rows that one role has; nothing for all roles."""
    if role == "all":
        return {}
    return {"role_token_frac": int(batch.tokens_of(role)[batch.valid_B].sum()) / num_tokens}


def scaled_by_source(batch: CreditBatch) -> CreditBatch:
    """Returns the batch with outcomes z-scored over all valid sessions of their data source.

    The z-score is `(outcome - mean) / (std + 1e-6)` over the source's outcomes in this batch, with the sample's std. So
    tasks whose rewards have different scales have equal effect. All rewards of a source are divided by the same number,
    turn rewards too. The mean is subtracted at the last sampled token of the session's last valid row, so that the
    session's rewards sum to the z-score. A source without a spread is only shifted. `baseline_B` is scaled alike.
    Estimators that divide by the group's spread do not change, except for their epsilon.

    Raises:
        ConfigError: the sources are unknown.
    """
    if batch.source_B is None:
        raise ConfigError(
            "algorithm.credit.by_source needs the data source of every row, which verl's own trainer does not hand "
            "over; set trainer.v1.trainer_mode to agentic_sync (agentic_colocate_async, agentic_separate_async)"
        )
    source_S = batch.per_session(batch.source_B)
    outcomes_S, num_sources = batch.outcomes_S.double(), int(source_S.max()) + 1 if len(source_S) else 0
    means_S = group_means(outcomes_S, source_S, valid_N=batch.valid_S, num_groups=num_sources)
    stds_S = group_stds(outcomes_S, source_S, valid_N=batch.valid_S, num_groups=num_sources, ddof=1)
    divisors_S = torch.where(stds_S > 0, stds_S + _EPSILON, 1.0)
    shifts_S, divisors_B = (means_S / divisors_S).float(), divisors_S.float()[batch.session_B]
    rewards_BT = batch.rewards_BT / divisors_B.unsqueeze(-1)
    rows_N = last_valid_rows(batch)
    rewards_BT[rows_N, last_tokens(batch.mask_BT[rows_N])] -= shifts_S[batch.session_B[rows_N]]
    baseline_B = batch.baseline_B
    if baseline_B is not None:
        baseline_B = baseline_B / divisors_B - shifts_S[batch.session_B]
    sizes_S = batch.reward_sizes(batch.valid_S) / divisors_S
    return replace(batch, rewards_BT=rewards_BT, baseline_B=baseline_B, sizes_S=sizes_S)


def _zero_masked(values_BT: Tensor, batch: CreditBatch, label: str) -> Tensor:
    """Returns values with 0 on masked tokens and void rows."""
    if values_BT.shape != batch.mask_BT.shape:
        raise DataError(f"the {label} must be {tuple(batch.mask_BT.shape)}, got {tuple(values_BT.shape)}")
    values_BT = masked(values_BT, batch.mask_BT)
    if values_BT[~batch.valid_B].count_nonzero():
        values_BT = torch.where(batch.valid_B.unsqueeze(-1), values_BT, 0.0)
    return values_BT


def _make_targets(returns_BT: Tensor, batch: CreditBatch, name: str) -> Tensor:
    """Returns the critic's targets; on invalid rows its own values, because 0 would train the critic."""
    targets_BT = _zero_masked(returns_BT, batch, f"returns of {name!r}")
    if batch.values_BT is None or bool(batch.valid_B.all()):
        return targets_BT
    own_BT = masked(batch.values_BT.float().nan_to_num(), batch.mask_BT)
    return torch.where(batch.valid_B.unsqueeze(-1), targets_BT, own_BT)


def _refuse_nonfinite(values_BT: Tensor, sums_B: Tensor, label: str) -> None:
    # Checks the cheap sums first. A sum that is not finite may also come from large finite values.
    if bool(torch.isfinite(sums_B).all()) or bool((is_finite_BT := torch.isfinite(values_BT)).all()):
        return
    row = int((~is_finite_BT).any(dim=-1).nonzero()[0])
    raise DataError(
        f"the {label} must be finite, got {int((~is_finite_BT).sum())} that are not, first in row {row}; check its "
        "options, and the columns it reads (values, log-probs) for NaN"
    )


def _num_tokens(batch: CreditBatch) -> int:
    """Returns the number of sampled tokens of valid rows."""
    num_tokens = int(torch.count_nonzero(batch.mask_BT))
    return num_tokens - int(torch.count_nonzero(batch.mask_BT[~batch.valid_B]))


def _num_beyond(values_BT: Tensor, bound: float) -> int:
    return sum(int((values_BT[rows].abs() > bound).sum()) for rows in row_blocks(values_BT))
