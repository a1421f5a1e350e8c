"""Advantages: our estimators by name in `algorithm.adv_estimator`, and group safety for verl's own.

Every estimator gets rewards that are finite, on sampled tokens, of rows that say something about the policy. verl's own
group estimators see one row per session, with the reward of the whole session; their advantage goes to all of its rows.
The section `algorithm.credit` (`algorithms.estimate.CreditSettings`) holds for all of them.

On batches of one row per session, none of them void, verl's estimators give what they give without this module, but
for what stands on masked tokens (0 here), groups of one where `rollout.n` is above 1 (0 here, the bare reward there),
and rewards on masked tokens, which verl's token-level estimators lose.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import trainer_base

from verl_agentic.adapters.session_rows import repeats, split_key
from verl_agentic.algorithms.advantage import AdvantageType, advantage, advantage_names, is_advantage, load_advantage
from verl_agentic.algorithms.batch_health import batch_health
from verl_agentic.algorithms.credit import Advantages, CreditBatch, last_tokens, last_valid_rows
from verl_agentic.algorithms.estimate import CreditSettings, estimate
from verl_agentic.algorithms.groups import group_counts
from verl_agentic.algorithms.handover import current_handover
from verl_agentic.algorithms.implicit_reward import (
    ImplicitRewardSettings,
    TokenRewards,
    implicit_health,
    implicit_rewards,
)
from verl_agentic.errors import ConfigError

logger = logging.getLogger(__name__)
Tensor = torch.Tensor
BY_GROUP = {
    *("gdpo", "gpg", "grpo", "grpo_passk", "grpo_shuffled", "grpo_vectorized", "opo", "reinforce_plus_plus_baseline"),
    *("rloo", "rloo_vectorized"),
}
"""Estimators not of this package that compare sessions of a prompt by what they earned."""
BY_SESSION = {*BY_GROUP, "remax"}
"""Those that give a session one number. To others, which may tell tokens apart, every row stands by itself, with the
rewards that verl gives it."""
_ALONE_IS_BARE = {*BY_GROUP, "optimal_token_baseline", "tir_optimal_token_baseline"}
"""Those that take the bare reward of a group of one for its advantage, or refuse it."""


def _compute(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compute(data: Any, batch_keys: Sequence[str], adv_estimator: Any, **kwargs: Any) -> Any:
        handover = current_handover()
        name = str(getattr(adv_estimator, "value", adv_estimator))
        is_ours = is_advantage(name)
        pays_once = is_ours or name in BY_SESSION
        tokens = None if handover.implicit_reward is None else _implicit(data, handover.implicit_reward)
        batch = to_batch(data, batch_keys, handover.columns, pays_once=pays_once, implicit=tokens)
        if is_ours:
            estimator = load_advantage(name)
        else:
            call = functools.partial(original, adv_estimator=adv_estimator, **kwargs)
            estimator = _verls(name, call, data, list(batch_keys), group_size=kwargs.get("num_repeat", 1))
        given = estimate(estimator, batch, _settings(kwargs.get("config")))
        handover.metrics.update(given.metrics)
        if tokens is not None:
            handover.metrics.update(implicit_health(batch, tokens.rewards_BT))
        try:
            known = dataclasses.replace(batch, **handover.for_metrics)
            handover.metrics.update(batch_health(known, raw_rewards_BT=data.batch["token_level_rewards"]))
        except Exception:  # numbers for people must not end a run
            logger.exception("the metrics batch/* of this step are missing")
        data.batch["advantages"] = given.advantages_BT
        data.batch["returns"] = given.returns_BT
        return data

    return compute


def to_batch(
    data: Any,
    batch_keys: Sequence[str],
    columns: Mapping[str, Any],
    *,
    pays_once: bool = True,
    implicit: TokenRewards | None = None,
) -> CreditBatch:
    """Returns what verl's trainer holds as a batch.

    Args:
        data: verl's DataProto.
        batch_keys: `{uid}_{session}_{index}` of every row.
        columns: see `Handover`.
        pays_once: whether rows that repeat the score of their session have no rewards.
        implicit: what comes on top of the rewards of the task.
    """
    parsed = [split_key(key) for key in batch_keys]
    in_batch = {"values_BT": "values", "old_log_probs_BT": "old_log_probs", "rollout_log_probs_BT": "rollout_log_probs"}
    mask_BT = data.batch["response_mask"].bool()
    rewards_BT = _on_sampled_tokens(data.batch["token_level_rewards"], mask_BT)
    if pays_once and any(is_copy := repeats(batch_keys, partition_id="train")):
        is_copy_B = torch.tensor(is_copy, device=rewards_BT.device)
        rewards_BT = rewards_BT.masked_fill(is_copy_B.unsqueeze(-1), 0.0)
    if implicit is not None:
        rewards_BT = implicit.added_to(rewards_BT)
    if (baseline_B := columns.get("baseline_B")) is not None:
        # No baseline, no signal: what is not finite is taken out.
        rewards_BT = torch.where(baseline_B.isfinite().unsqueeze(-1), rewards_BT, torch.nan)
    return CreditBatch.of(
        rewards=rewards_BT,
        mask=mask_BT,
        groups=[uid for uid, _, _ in parsed],
        sessions=[(uid, session) for uid, session, _ in parsed],
        order=[index for _, _, index in parsed],
        **{ours: data.batch[theirs] for ours, theirs in in_batch.items() if theirs in data.batch},
        **columns,
    )


def _on_sampled_tokens(rewards_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns rewards of which those on masked tokens lie on the last sampled token of their row.

    verl puts a score on the last token of a response, which may be an observation, or have been masked since.
    """
    stray_BT = rewards_BT.masked_fill(mask_BT, 0.0)
    if not bool(stray_BT.any()):
        return rewards_BT
    place_B1 = last_tokens(mask_BT).clamp(min=0).unsqueeze(-1)
    return rewards_BT.masked_fill(~mask_BT, 0.0).scatter_add(1, place_B1, stray_BT.sum(dim=-1, keepdim=True))


def _implicit(data: Any, settings: ImplicitRewardSettings) -> TokenRewards:
    rewards_BT = implicit_rewards(
        data.batch["ref_log_prob"], data.batch["old_log_probs"], data.batch["response_mask"].bool(), beta=settings.beta
    )
    return TokenRewards(rewards_BT=rewards_BT, outcome_coef=settings.outcome_coef)


def _settings(config: Any) -> CreditSettings:
    section: Any = (config or {}).get("credit") or {}
    return CreditSettings.from_mapping(OmegaConf.to_container(OmegaConf.create(section), resolve=True))  # pyright: ignore


def _verls(name: str, call: Callable[..., Any], data: Any, batch_keys: list[str], *, group_size: int) -> AdvantageType:
    """Returns an estimator of verl's as one of ours."""
    by_session = name in BY_SESSION

    def estimator(batch: CreditBatch) -> Advantages:
        rows_N = last_valid_rows(batch) if by_session else batch.valid_B.nonzero().squeeze(-1)
        if group_size > 1 and name in _ALONE_IS_BARE:
            # Right when groups are of one, not when all siblings are void.
            rows_N = rows_N[_has_siblings(batch)[rows_N]]
        zeros_BT = torch.zeros_like(batch.rewards_BT)
        if not len(rows_N):
            return Advantages(advantages_BT=zeros_BT, returns_BT=zeros_BT)
        part = data.select_idxs(rows_N.cpu())
        part.batch["token_level_rewards"] = (_whole_sessions(batch) if by_session else batch.rewards_BT)[rows_N]
        _complete(name, part, batch, rows_N)
        part = call(part, batch_keys=[batch_keys[row] for row in rows_N.tolist()])
        given = [part.batch[column].to(zeros_BT.dtype) for column in ("advantages", "returns")]
        others = [_on_all_rows(batch, rows_N, column) if by_session else zeros_BT for column in given]
        advantages_BT, returns_BT = (
            other.index_copy(0, rows_N, column) for other, column in zip(others, given, strict=True)
        )
        return Advantages(advantages_BT=advantages_BT, returns_BT=returns_BT)

    return dataclasses.replace(advantage()(estimator), name=name)


def _complete(name: str, part: Any, batch: CreditBatch, rows_N: Tensor) -> None:
    """Gives those of verl's estimators that its V1 trainers cannot run what they lack.

    Raises:
        ConfigError: it is not known.
    """
    if name == "remax":
        part.batch["reward_baselines"] = _needed(name, batch.baseline_B)[rows_N]
    elif name in ("optimal_token_baseline", "tir_optimal_token_baseline"):
        part.batch["sum_pi_squared"] = _needed(name, batch.sum_pi_squared_BT)[rows_N]
    elif name == "gdpo":
        for key, values_B in _needed(name, batch.parts or None).items():
            part.non_tensor_batch[key] = values_B[rows_N].cpu().numpy()
        mask_NT = part.batch["response_mask"]
        part.batch["prompts"] = mask_NT.new_zeros((len(rows_N), 0))
        part.batch["attention_mask"] = torch.ones_like(mask_NT)


def _needed(name: str, column: Any) -> Any:
    if column is None:
        raise ConfigError(
            f"estimator {name!r} cannot run under verl's own V1 trainers, which do not hand over what it needs; set "
            "trainer.v1.trainer_mode to agentic_sync (agentic_colocate_async, agentic_separate_async)"
        )
    return column


def _whole_sessions(batch: CreditBatch) -> Tensor:
    """Returns `[B, T]` rewards of which every row carries those of its whole session."""
    missing_B = batch.outcomes_S[batch.session_B] - batch.returns_B
    if not bool(missing_B.any()):
        return batch.rewards_BT
    place_B1 = last_tokens(batch.mask_BT).clamp(min=0).unsqueeze(-1)
    return batch.rewards_BT.scatter_add(1, place_B1, missing_B.unsqueeze(-1))


def _on_all_rows(batch: CreditBatch, rows_N: Tensor, values_NT: Tensor) -> Tensor:
    """Returns `[B, T]`: on every row of a session what its one row has on its first sampled token."""
    first_N = batch.mask_BT[rows_N].long().argmax(dim=1, keepdim=True)
    values_S = torch.zeros(batch.num_sessions, dtype=values_NT.dtype, device=values_NT.device)
    values_S[batch.session_B[rows_N]] = values_NT.gather(1, first_N).squeeze(-1)
    return batch.to_tokens(values_S)


def _has_siblings(batch: CreditBatch) -> Tensor:
    counts_S = group_counts(batch.group_S, valid_N=batch.valid_S, num_groups=batch.num_groups)
    return (counts_S > 1)[batch.session_B]


def _registered(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Returns an estimator of ours as verl's registry calls it: without sessions, and without what a trainer knows."""

    def compute(
        token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        groups = list(range(len(response_mask))) if index is None else list(index)
        batch = CreditBatch.of(rewards=token_level_rewards, mask=response_mask, groups=groups)
        given = estimate(load_advantage(name), batch, _settings(config))
        return given.advantages_BT, given.returns_BT

    return compute


for _name in advantage_names():
    register_adv_est(_name)(_registered(_name))
_base = cast("Any", trainer_base)
_base.compute_advantage_for_multi_trajectories = _compute(_base.compute_advantage_for_multi_trajectories)
