"""verl's trainers with extra columns for estimators and losses: `trainer.v1.trainer_mode=agentic_<mode>`.

One mixin over verl's `sync`, `colocate_async` and `separate_async`. It passes columns that the agent loop stored with
every row to the estimators, and stores columns for losses in the batch, which verl ships to the actor. Methods that
need more bring a part of their own (`verl.trainer.trainer_part`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.v1 import trainer_colocate_async, trainer_separate_async, trainer_sync
from verl.trainer.ppo.v1.trainer_base import register_trainer

from verl_agentic.credit.policy_loss import is_policy_loss
from verl_agentic.credit.trainer_context import AddedRewards, TrainerContext, use_context
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.verl.batches.batch_columns import stored_columns
from verl_agentic.verl.batches.row_store import group_keys, split_key, stored_rows
from verl_agentic.verl.trainer.loss_checks import is_greedy, takes_sum_pi_squared
from verl_agentic.verl.trainer.trainer_part import load_parts, load_states, save_states, store_columns

_POLICY_LOSS = "actor_rollout_ref.actor.policy_loss"


class CreditMixin:
    """Additions to verl's trainers."""

    mode: str
    """verl's name of the trainer underneath."""
    config: Any

    def __init__(self, config: Any) -> None:
        """Builds the trainer under verl's own mode name."""
        self.agentic_parts = load_parts(config)
        for part in self.agentic_parts:
            part.prepare()
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode
        super().__init__(config)  # pyright: ignore[reportCallIssue]
        self._greedy: dict[str, float] = {}

    def _setup(self) -> None:
        cast("Any", super())._setup()
        for part in self.agentic_parts:
            part.after_setup(self)

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = cast("Any", super())._next_train_batch(num_prompts)
        if is_greedy(self._estimator_name):
            sampled = batch.get("__rollout_n__", None)
            if sampled is None:
                sampled = torch.full((len(batch),), int(self.config.actor_rollout_ref.rollout.n))
            batch["__rollout_n__"], batch[GREEDY_SESSION] = sampled + 1, sampled
        return batch

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if is_greedy(self._estimator_name):
            batch, self._greedy = _take_greedy(batch)
        batch = cast("Any", super())._balance_batch(batch, *args, **kwargs)
        for part in self.agentic_parts:
            part.after_balance(self, batch)
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info["calculate_sum_pi_squared"] = takes_sum_pi_squared(self._estimator_name)
        for part in self.agentic_parts:
            part.before_log_probs(batch)
        batch = cast("Any", super())._compute_old_log_prob(batch, metrics)
        for part in self.agentic_parts:
            batch = part.after_log_probs(batch)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        columns = stored_columns(batch)
        if is_greedy(self._estimator_name):
            columns["baseline_B"] = _look_up_baselines(batch.keys, self._greedy)
        for part in self.agentic_parts:
            metrics |= part.before_advantages(self, batch, columns)
        with use_context(TrainerContext(columns=columns, metrics=metrics, token_rewards=self._token_rewards)):
            batch = cast("Any", super())._compute_advantage(batch, metrics)
        if is_policy_loss(self._loss_mode):
            batch = _store_for_losses(batch, columns)
        if OmegaConf.select(self.config, f"{_POLICY_LOSS}.per_session"):
            batch = _store_session_weights(batch)
        for part in self.agentic_parts:
            batch = part.after_advantages(self, batch, columns)
        return batch

    def _save_checkpoint(self) -> None:
        # First, because verl marks the checkpoint as complete at the end.
        save_states(self.agentic_parts, self)
        cast("Any", super())._save_checkpoint()

    def _load_checkpoint(self) -> None:
        cast("Any", super())._load_checkpoint()
        if cast("Any", self).global_steps:
            load_states(self.agentic_parts, self)

    def _token_rewards(self, data: Any) -> list[AddedRewards]:
        rewards = (part.token_rewards(data) for part in self.agentic_parts)
        return [added for added in rewards if added is not None]

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        factors = [factor for part in self.agentic_parts if (factor := part.lr_factor(self, batch)) is not None]
        if factors:
            batch.extra_info["lr_scale"] = metrics["actor/lr_scale"] = math.prod(factors)
        for part in self.agentic_parts:
            part.before_update(batch)
        return cast("Any", super())._update_actor(batch, metrics)

    @property
    def _estimator_name(self) -> str:
        return str(self.config.algorithm.adv_estimator)

    @property
    def _loss_mode(self) -> str:
        return str(OmegaConf.select(self.config, "actor_rollout_ref.actor.policy_loss.loss_mode"))


def _take_greedy(batch: Any) -> tuple[Any, dict[str, float]]:
    """Returns the batch without its greedy sessions, and the reward of each prompt's greedy session."""
    sessions = _greedy_sessions(batch.keys, batch.partition_id)
    is_greedy = [sessions.get(uid) == int(session) for uid, session, _ in map(split_key, batch.keys)]
    keep = [place for place, greedy in enumerate(is_greedy) if not greedy]
    greedy_keys = [key for key, greedy in zip(batch.keys, is_greedy, strict=True) if greedy]
    keys, tags = [batch.keys[place] for place in keep], [batch.tags[place] for place in keep]
    trained_batch = dataclasses.replace(batch, keys=keys, tags=tags)
    return (trained_batch, _take_rewards(greedy_keys, batch.partition_id)) if greedy_keys else (trained_batch, {})


def _greedy_sessions(keys: Sequence[str], partition_id: str) -> dict[str, int]:
    """Returns the greedy session of every prompt that has one."""
    fields = [GREEDY_SESSION, "response_mask"]
    fetched = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=fields)
    uids = [split_key(key)[0] for key in keys]
    if GREEDY_SESSION in fetched:
        return dict(zip(uids, fetched[GREEDY_SESSION].tolist(), strict=True))
    if len(set(uids)) == 1:
        return {}
    # In a resumed run, some prompts may come from another estimator's run.
    one_each = dict(zip(uids, keys, strict=True)).values()
    return {uid: session for key in one_each for uid, session in _greedy_sessions([key], partition_id).items()}


def _take_rewards(keys: Sequence[str], partition_id: str) -> dict[str, float]:
    """Returns rewards of valid sessions by uid, and removes their rows."""
    fields = ["rm_scores", "response_mask"]
    fetched = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=fields)
    earned: dict[str, float] = {}
    rows = (keys, *(fetched[name].unbind() for name in fields), stored_rows(keys, partition_id=partition_id).is_copy)
    for key, rewards, mask, is_copy in zip(*rows, strict=True):
        uid = split_key(key)[0]
        if bool(mask.any()) and not is_copy:
            earned[uid] = earned.get(uid, 0.0) + float(rewards.sum())
    tq.kv_clear(keys=list(keys), partition_id=partition_id)
    return earned


def _look_up_baselines(keys: Sequence[str], greedy: dict[str, float]) -> torch.Tensor:
    """Returns `[B]` baselines; NaN (row excluded) if the prompt has no valid greedy session."""
    return torch.tensor([greedy.get(split_key(key)[0], math.nan) for key in keys])


def _store_for_losses(batch: Any, columns: dict[str, Any]) -> Any:
    """Returns the batch with columns for policy losses that verl does not pass: siblings and outcomes."""
    groups = group_keys(batch.keys, columns.get("parts", {}))
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    group_B = torch.tensor([numbers[group] for group in groups])
    fields = {"credit_group": group_B, "credit_group_size": group_B.bincount()[group_B]}
    fields["credit_session"] = _session_numbers(batch)
    if "acc" in columns.get("parts", {}):
        fields["credit_outcome"] = columns["parts"]["acc"]
    return store_columns(batch, fields)


def _session_numbers(batch: Any) -> torch.Tensor:
    sessions = [split_key(key)[:2] for key in batch.keys]
    numbers = {session: number for number, session in enumerate(dict.fromkeys(sessions))}
    return torch.tensor([numbers[session] for session in sessions])


def _store_session_weights(batch: Any) -> Any:
    """Returns the batch with 1 / number of loss tokens of every row's session; 0 if there are none."""
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
    num_tokens_B = torch.stack([row.sum() for row in fetched["response_mask"].unbind()]).float()
    session_B = _session_numbers(batch)
    num_tokens_B = torch.zeros(int(session_B.max()) + 1).index_add(0, session_B, num_tokens_B)[session_B]
    return store_columns(batch, {"credit_session_weight": torch.where(num_tokens_B > 0, 1.0 / num_tokens_B, 0.0)})


def _register_mode(base: type[Any], mode: str) -> None:
    cls: Any = type(
        f"Agentic{base.__name__}", (CreditMixin, base), {"mode": mode, "__doc__": f"verl's {mode} trainer."}
    )
    register_trainer(f"agentic_{mode}")(cls)


_register_mode(trainer_sync.PPOTrainerSync, "sync")
_register_mode(trainer_colocate_async.PPOTrainerColocateAsync, "colocate_async")
_register_mode(trainer_separate_async.PPOTrainerSeparateAsync, "separate_async")
