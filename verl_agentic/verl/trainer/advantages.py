"""Patches verl: `compute_advantage_for_multi_trajectories` makes its own estimators safe for groups.

Registers our estimators by name in `algorithm.adv_estimator`.

Every estimator gets valid sessions with finite rewards, once, on sampled tokens. Tokens that verl's rejection sampling
removed from the loss count as sampled, but get no advantage. verl's own estimators see one row per session
(`JoinedRows`). The section `algorithm.credit` (`credit.estimate.CreditSettings`) applies to all of them.

On batches of one valid row per session, verl's estimators give the same results as without this module, with these
exceptions: masked tokens and constant groups get exactly 0; groups of one get 0 if `rollout.n` is above 1 (in verl, the
raw reward); rewards on masked tokens are not lost. verl's two token baselines are replaced by `token_baseline`.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import trainer_base

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.credit.advantage import AdvantageType, advantage, advantage_names, is_advantage, load_advantage
from verl_agentic.credit.batch_metrics.batch_health import batch_health
from verl_agentic.credit.credit.batch import Advantages, CreditBatch, last_valid_rows, masked, on_sampled_tokens
from verl_agentic.credit.credit.gae import where_known
from verl_agentic.credit.credit.group_statistics import group_counts, is_constant
from verl_agentic.credit.credit.joined_rows import JoinedRows
from verl_agentic.credit.estimate import CreditSettings, estimate
from verl_agentic.credit.trainer_context import AddedRewards, current_context
from verl_agentic.verl.batches.row_store import group_keys, is_padding, split_key, stored_rows
from verl_agentic.verl.patching import wrap

logger = logging.getLogger(__name__)
BY_GROUP = {
    *("gdpo", "gpg", "grpo", "grpo_passk", "grpo_shuffled", "grpo_vectorized", "opo", "reinforce_plus_plus_baseline"),
    *("rloo", "rloo_vectorized"),
}
"""verl's estimators that compare the sessions of a prompt by their rewards."""
BY_SESSION = {*BY_GROUP, "gae", "reinforce_plus_plus", "remax"}
"""Estimators that treat a row as a session. Others get every row with verl's rewards."""
WHITENED = frozenset({"gae", "gdpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"})
"""verl's estimators that whiten over all tokens of a batch."""
_OURS_INSTEAD: dict[str, str] = {
    "optimal_token_baseline": "token_baseline",
    "tir_optimal_token_baseline": "token_baseline",
}
"""Replaced, because verl's explode if a weight is rounded below 0, and give singletons raw returns."""
GROUP_ESTIMATORS = frozenset({*BY_GROUP, *_OURS_INSTEAD})
"""verl's estimators that compare siblings: singletons get no signal, or their raw reward."""


@wrap(trainer_base, "compute_advantage_for_multi_trajectories")
def _compute_safely(compute: Any, data: Any, batch_keys: Sequence[str], adv_estimator: Any, **kwargs: Any) -> Any:
    context = current_context()
    name = str(getattr(adv_estimator, "value", adv_estimator))
    is_ours = is_advantage(name) or name in _OURS_INSTEAD
    by_session = is_ours or name in BY_SESSION
    tokens = context.token_rewards(data)
    correction = (kwargs.get("config") or {}).get("rollout_correction") or {}
    batch = to_batch(
        data,
        batch_keys,
        context.columns,
        by_session=by_session,
        is_rejecting=bool(correction.get("rollout_rs")),
        token_rewards=tokens,
    )
    if is_ours:
        _refuse_lacking(name, batch)
        estimator = dataclasses.replace(load_advantage(_OURS_INSTEAD.get(name, name)), name=name)
    else:
        call = functools.partial(compute, adv_estimator=adv_estimator, **kwargs)
        estimator = _adapt_verl_estimator(name, call, data, list(batch_keys), group_size=kwargs.get("num_repeat", 1))
    advantages = estimate(estimator, batch, _read_credit_settings(kwargs.get("config")))
    context.metrics.update(advantages.metrics)
    for added in tokens:
        context.metrics.update(added.metrics(batch))
    try:
        metrics_batch = dataclasses.replace(batch, **context.for_metrics)
        context.metrics.update(batch_health(metrics_batch, raw_rewards_BT=data.batch["token_level_rewards"]))
    except Exception:  # metrics must not end a run
        logger.exception("the metrics batch/* of this step are missing")
    in_loss_BT = data.batch["response_mask"].bool()
    data.batch["advantages"] = masked(advantages.advantages_BT, in_loss_BT)
    is_critic = advantages.returns_BT is not advantages.advantages_BT
    data.batch["returns"] = masked(advantages.returns_BT, in_loss_BT) if is_critic else data.batch["advantages"]
    return data


def to_batch(
    data: Any,
    batch_keys: Sequence[str],
    columns: Mapping[str, Any],
    *,
    by_session: bool = True,
    is_rejecting: bool = False,
    token_rewards: Sequence[AddedRewards] = (),
) -> CreditBatch:
    """Returns the data of verl's trainer as a `CreditBatch`.

    Args:
        batch_keys: `{uid}_{session}_{index}` of every row.
        by_session: whether repeated scores of a session are removed, rejected tokens count as sampled, and rows of
            sub-agents are marked.
        is_rejecting: whether verl may have removed tokens from the mask.
        token_rewards: rewards to add to those of the task.
    """
    parsed = [split_key(key) for key in batch_keys]
    in_batch = {
        "values_BT": "values",
        "old_log_probs_BT": "old_log_probs",
        "rollout_log_probs_BT": "rollout_log_probs",
        "is_weights_BT": "rollout_is_weights",
    }
    mask_BT, rewards_BT, agent_columns = data.batch["response_mask"].bool(), data.batch["token_level_rewards"], {}
    num_sessions = len({(uid, session) for uid, session, _ in parsed})
    if by_session and (is_rejecting or num_sessions < len(parsed)):
        stored = stored_rows(batch_keys, partition_id="train")
        mask_BT = stored.sampled(mask_BT)
        rewards_BT = rewards_BT.masked_fill(torch.tensor(stored.is_copy, device=mask_BT.device).unsqueeze(-1), 0.0)
        if stored.is_side is not None:
            agent_columns |= {"is_side_B": torch.tensor(stored.is_side, device=mask_BT.device), "agents": stored.agents}
    if (baseline_B := columns.get("baseline_B")) is not None:
        # Rows without a finite baseline have no signal and are removed.
        rewards_BT = torch.where(baseline_B.isfinite().unsqueeze(-1), rewards_BT, torch.nan)
    fields = {
        "mask": mask_BT,
        "groups": group_keys(batch_keys, columns.get("parts", {})),
        "sessions": [(uid, session) for uid, session, _ in parsed],
        "order": [index for _, _, index in parsed],
        "is_padding_B": torch.tensor([is_padding(key) for key in batch_keys], device=mask_BT.device),
        **{ours: data.batch[theirs] for ours, theirs in in_batch.items() if theirs in data.batch},
        **agent_columns,
        **columns,
    }
    if bool(rewards_BT.masked_fill(mask_BT, 0.0).any()):
        played = CreditBatch.of(rewards=torch.zeros_like(rewards_BT), **fields)
        rewards_BT = on_sampled_tokens(rewards_BT, played)
    for added in token_rewards:
        rewards_BT = added.added_to(rewards_BT)
    return CreditBatch.of(rewards=rewards_BT, **fields)


def _read_credit_settings(config: Any) -> CreditSettings:
    section: Any = (config or {}).get("credit") or {}
    raw_settings = OmegaConf.to_container(OmegaConf.create(section), resolve=True)
    return read_settings(CreditSettings, raw_settings, section="algorithm.credit")


def _adapt_verl_estimator(
    name: str, call: Callable[..., Any], data: Any, batch_keys: list[str], *, group_size: int
) -> AdvantageType:
    """Wraps one of verl's estimators as ours."""

    def estimator(batch: CreditBatch) -> Advantages:
        rows_N = last_valid_rows(batch) if name in BY_SESSION else batch.valid_B.nonzero().squeeze(-1)
        if group_size > 1 and name in BY_GROUP:
            # verl gives them the raw reward, which is right for groups of one, but not if all siblings are void.
            rows_N = rows_N[_has_siblings_S(batch)[batch.session_B][rows_N]]
        zeros_BT = torch.zeros_like(batch.rewards_BT)
        if not len(rows_N):
            return Advantages(advantages_BT=zeros_BT, returns_BT=zeros_BT)
        is_joined = name in BY_SESSION and int(batch.is_chained_B.sum()) > int(batch.valid_S.sum())
        joined = JoinedRows.of(batch, rows_N) if is_joined else None
        part = data.select_idxs(rows_N.cpu())
        columns = {"response_mask": batch.mask_BT.to(part.batch["response_mask"].dtype)}
        columns |= {"token_level_rewards": batch.rewards_BT}
        if batch.values_BT is not None:
            columns["values"] = where_known(batch.values_BT, batch.mask_BT)
        columns = {key: joined.join(column) if joined else column[rows_N] for key, column in columns.items()}
        if name in WHITENED and int(columns["response_mask"].sum()) < 2:  # verl raises: one token has no spread
            return Advantages(advantages_BT=zeros_BT, returns_BT=zeros_BT)
        part.batch = TensorDict(columns, batch_size=len(rows_N))
        if name in BY_SESSION:
            part.non_tensor_batch["uid"] = batch.group_B[rows_N].cpu().numpy().astype(object)
        _add_missing_columns(name, part, batch, rows_N)
        part = call(part, batch_keys=[batch_keys[row] for row in rows_N.tolist()])
        advantages_BT, returns_BT = (
            joined.split(column, like_BT=zeros_BT) if joined else zeros_BT.index_copy(0, rows_N, column.to(zeros_BT))
            for column in (part.batch["advantages"], part.batch["returns"])
        )
        if name in BY_GROUP:
            is_constant_B1 = _is_constant(name, batch)[batch.session_B].unsqueeze(-1)
            advantages_BT, returns_BT = (x_BT.masked_fill(is_constant_B1, 0.0) for x_BT in (advantages_BT, returns_BT))
        return Advantages(advantages_BT=advantages_BT, returns_BT=returns_BT)

    return dataclasses.replace(advantage()(estimator), name=name)


def _is_constant(name: str, batch: CreditBatch) -> Tensor:
    """Returns `[S]` bool: the session equals its siblings within rounding."""
    columns = [batch.outcomes_S]
    if name == "gdpo":
        columns = [batch.per_session(part_B.float()) for part_B in batch.parts.values()]
    among = {"group_N": batch.group_S, "valid_N": batch.valid_S, "num_groups": batch.num_groups}
    return torch.stack([_has_siblings_S(batch), *(is_constant(column_S, **among) for column_S in columns)]).all(dim=0)


def _add_missing_columns(name: str, part: Any, batch: CreditBatch, rows_N: Tensor) -> None:
    """Adds columns that verl's V1 trainers do not pass to its estimators. Raises ConfigError if a column is unknown."""
    if name == "remax":
        part.batch["reward_baselines"] = _require_column(name, batch.baseline_B)[rows_N]
    elif name == "gdpo":
        for key, values_B in _require_column(name, batch.parts or None).items():
            part.non_tensor_batch[key] = values_B[rows_N].cpu().numpy()
        mask_NT = part.batch["response_mask"]
        part.batch["prompts"] = mask_NT.new_zeros((len(rows_N), 0))
        part.batch["attention_mask"] = torch.ones_like(mask_NT)


def _refuse_lacking(name: str, batch: CreditBatch) -> None:
    if name in _OURS_INSTEAD:
        _require_column(name, batch.sum_pi_squared_BT)


def _require_column(name: str, column: Any) -> Any:
    if column is None:
        raise ConfigError(
            f"estimator {name!r} cannot run under verl's own V1 trainers, which do not hand over what it needs; set "
            "trainer.v1.trainer_mode to agentic_sync (agentic_colocate_async, agentic_separate_async)"
        )
    return column


def _has_siblings_S(batch: CreditBatch) -> Tensor:
    return group_counts(batch.group_S, valid_N=batch.valid_S, num_groups=batch.num_groups) > 1


def _adapt_our_estimator(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Wraps one of our estimators for verl's registry, without sessions and trainer columns."""

    def compute(
        token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        groups = list(range(len(response_mask))) if index is None else list(index)
        batch = CreditBatch.of(rewards=token_level_rewards, mask=response_mask, groups=groups)
        advantages = estimate(load_advantage(name), batch, _read_credit_settings(config))
        return advantages.advantages_BT, advantages.returns_BT

    return compute


for _name in advantage_names():
    register_adv_est(_name)(_adapt_our_estimator(_name))
