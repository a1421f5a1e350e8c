"""verl's trainers with extra columns for estimators and losses: `trainer.v1.trainer_mode=agentic_<mode>`.

One mixin over verl's `sync`, `colocate_async` and `separate_async`. It passes columns that the agent loop stored with
every row to the estimators, and stores columns for losses in the batch, which verl ships to the actor.
`algorithm.length_lr.reference_tokens` lowers the learning rate for longer responses, and `algorithm.linear_lr` over the
run. `algorithm.implicit_reward` adds token rewards of a model (`adapters.trainer.implicit_rewards`), and
`algorithm.prompt_information` measures whether responses depend on prompts (`adapters.trainer.prompt_effect`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1 import trainer_colocate_async, trainer_separate_async, trainer_sync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.workers.utils.padding import response_from_nested

from verl_agentic.adapters.batches.batch_columns import stored_columns
from verl_agentic.adapters.batches.batch_keys import group_keys, split_key, stored_rows
from verl_agentic.adapters.trainer.implicit_rewards import (
    check_reward_model_is_loaded,
    implicit_reward_settings,
    put_reward_model_in_place_of_reference,
)
from verl_agentic.adapters.trainer.loss_checks import is_greedy, takes_sum_pi_squared
from verl_agentic.adapters.trainer.prompt_effect import measure_prompt_information
from verl_agentic.adapters.trainer.self_teacher import store_teacher_log_probs
from verl_agentic.adapters.trainer.trainer_features import length_lr, linear_lr, prompt_information
from verl_agentic.adapters.trainer.whole_groups import keep_groups_whole
from verl_agentic.agent_loops.loop_settings import GREEDY_SESSION
from verl_agentic.algorithms.losses.length_lr import length_lr_factor
from verl_agentic.algorithms.losses.linear_lr import linear_lr_factor
from verl_agentic.algorithms.policy_loss import is_policy_loss, needs_of_loss
from verl_agentic.algorithms.policy_losses.vapo import positive_share
from verl_agentic.algorithms.trainer_context import TrainerContext, use_context
from verl_agentic.errors import ConfigError

_POLICY_LOSS = "actor_rollout_ref.actor.policy_loss"


class CreditMixin:
    """Additions to verl's trainers."""

    mode: str
    """verl's name of the trainer underneath."""
    config: Any

    def __init__(self, config: Any) -> None:
        """Builds the trainer under verl's own mode name."""
        put_reward_model_in_place_of_reference(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode
        super().__init__(config)  # pyright: ignore[reportCallIssue]
        self._greedy: dict[str, float] = {}
        self._group_rows = 1

    def _setup(self) -> None:
        cast("Any", super())._setup()
        if (settings := implicit_reward_settings(self.config)) is not None:
            check_reward_model_is_loaded(cast("Any", self).ref_policy_wg, settings.model_path)

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = cast("Any", super())._next_train_batch(num_prompts)
        if is_greedy(self._estimator):
            sampled = batch.get("__rollout_n__", None)
            if sampled is None:
                sampled = torch.full((len(batch),), int(self.config.actor_rollout_ref.rollout.n))
            batch["__rollout_n__"], batch[GREEDY_SESSION] = sampled + 1, sampled
        return batch

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if is_greedy(self._estimator):
            batch, self._greedy = _take_greedy(batch)
        batch = cast("Any", super())._balance_batch(batch, *args, **kwargs)
        if "group_size_B" in needs_of_loss(self._loss):
            ranks = cast("Any", self).actor_rollout_wg._dispatch_info["actor"]
            self._group_rows = keep_groups_whole(
                batch,
                num_ranks=max(ranks) + 1,
                groups_per_update=self.config.actor_rollout_ref.actor.ppo_mini_batch_size,
            )
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info["calculate_sum_pi_squared"] = takes_sum_pi_squared(self._estimator)
        batch.extra_info["calculate_mean_log_prob"] = "mean_log_ratio_BT" in needs_of_loss(self._loss)
        batch = cast("Any", super())._compute_old_log_prob(batch, metrics)
        return _keep_mean_log_prob(batch) if "mean_log_ratio_BT" in needs_of_loss(self._loss) else batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        columns = stored_columns(batch)
        if is_greedy(self._estimator):
            columns["baseline_B"] = _baselines(batch.keys, self._greedy)
        # Before verl, which may remove tokens from the mask.
        metrics |= self._prompt_information(batch, columns)
        implicit = implicit_reward_settings(self.config)
        with use_context(TrainerContext(columns=columns, metrics=metrics, implicit_reward=implicit)):
            batch = cast("Any", super())._compute_advantage(batch, metrics)
        if implicit is not None:
            batch = _store_finite_reference(batch)
        if is_policy_loss(self._loss):
            batch = _store_for_losses(batch, columns)
        if OmegaConf.select(self.config, f"{_POLICY_LOSS}.per_session"):
            batch = _store_session_weights(batch)
        if "teacher_log_prob_BT" in needs_of_loss(self._loss):
            outcome_B = _outcomes(columns, why=f"the loss {self._loss} learns from siblings that did the task")
            batch = store_teacher_log_probs(self, batch, outcome_B=outcome_B.tolist())
        if "positive_share_B" in needs_of_loss(self._loss):
            batch = _store_positive_share(batch, columns, loss=self._loss)
        return batch

    def _prompt_information(self, batch: Any, columns: dict[str, Any]) -> dict[str, float]:
        settings, trainer = prompt_information(self.config), cast("Any", self)
        # verl's separate_async has several batches in a step.
        if settings is None or (trainer.global_steps - 1) % settings.every or trainer.local_trigger_step:
            return {}
        return measure_prompt_information(self, batch, columns, settings)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if (factor := self._lr_scale(batch)) is not None:
            batch.extra_info["lr_scale"] = metrics["actor/lr_scale"] = factor
        batch.extra_info["calculate_mean_log_prob"] = "mean_log_ratio_BT" in needs_of_loss(self._loss)
        if self._group_rows > 1:
            batch.extra_info["force_group_size"] = self._group_rows
        return cast("Any", super())._update_actor(batch, metrics)

    def _lr_scale(self, batch: Any) -> float | None:
        """Returns the factor of the batch's learning rate, or None if no section sets one."""
        factors = []
        if (by_length := length_lr(self.config)) is not None:
            factors.append(length_lr_factor(_mean_length(batch), reference_length=by_length.reference_tokens))
        if (linear := linear_lr(self.config)) is not None:
            step, total = cast("Any", self).global_steps, cast("Any", self).total_training_steps
            factors.append(linear_lr_factor(step, num_steps=total, min_ratio=linear.min_ratio))
        return math.prod(factors) if factors else None

    @property
    def _estimator(self) -> str:
        return str(self.config.algorithm.adv_estimator)

    @property
    def _loss(self) -> str:
        return str(OmegaConf.select(self.config, "actor_rollout_ref.actor.policy_loss.loss_mode"))


def _take_greedy(batch: Any) -> tuple[Any, dict[str, float]]:
    """Returns the batch without its greedy sessions, and the reward of each prompt's greedy session."""
    sessions = _greedy_sessions(batch.keys, batch.partition_id)
    is_greedy = [sessions.get(uid) == int(session) for uid, session, _ in map(split_key, batch.keys)]
    keep = [place for place, greedy in enumerate(is_greedy) if not greedy]
    taken = [key for key, greedy in zip(batch.keys, is_greedy, strict=True) if greedy]
    keys, tags = [batch.keys[place] for place in keep], [batch.tags[place] for place in keep]
    kept = dataclasses.replace(batch, keys=keys, tags=tags)
    return (kept, _earned(taken, batch.partition_id)) if taken else (kept, {})


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


def _earned(keys: Sequence[str], partition_id: str) -> dict[str, float]:
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


def _baselines(keys: Sequence[str], greedy: dict[str, float]) -> torch.Tensor:
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
    return _put(batch, fields)


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
    return _put(batch, {"credit_session_weight": torch.where(num_tokens_B > 0, 1.0 / num_tokens_B, 0.0)})


def _store_positive_share(batch: Any, columns: dict[str, Any], *, loss: str) -> Any:
    outcome_B = _outcomes(columns, why=f"the loss {loss} imitates what did the task")
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
    num_tokens_B = torch.stack([row.sum() for row in fetched["response_mask"].unbind()])
    return _put(batch, {"credit_positive_share": torch.full_like(outcome_B, positive_share(outcome_B, num_tokens_B))})


def _outcomes(columns: dict[str, Any], *, why: str) -> torch.Tensor:
    parts = columns.get("parts", {})
    if "acc" not in parts:
        raise ConfigError(
            f"{why}, got rewards without acc, only with {sorted(parts)}; play episodes with env_agent, or return acc "
            "from the reward function"
        )
    return parts["acc"]


def _keep_mean_log_prob(batch: Any) -> Any:
    """Returns the batch with mean log-probs before the updates, under a separate name."""
    fetched = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["mean_log_prob", "response_mask"]
    )
    means = response_from_nested(fetched["mean_log_prob"], fetched["response_mask"])
    return _put(batch, {"old_mean_log_prob": means})


def _store_finite_reference(batch: Any) -> Any:
    """Returns the batch with missing reference log-probs replaced by the policy's.

    These rows have no advantage, but verl still adds its KL term times 0, which is NaN for NaN.
    """
    names = ["ref_log_prob", "old_log_probs"]
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    reference, old = (cast("Any", fetched[name]) for name in names)
    if bool(reference.values().isfinite().all()):
        return batch
    values = torch.where(reference.values().isfinite(), reference.values(), old.values())
    return _put(batch, {"ref_log_prob": torch.nested.nested_tensor_from_jagged(values, reference.offsets())})


def _put(batch: Any, fields: dict[str, torch.Tensor]) -> Any:
    stored = TensorDict(fields, batch_size=len(batch.keys))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=stored)


def _mean_length(batch: Any) -> float:
    """Returns the mean number of sampled tokens of rows with any."""
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
    lengths = [count for row in fetched["response_mask"].unbind() if (count := int(row.sum()))]
    return sum(lengths) / max(len(lengths), 1)


def _register(base: type[Any], mode: str) -> None:
    cls: Any = type(
        f"Agentic{base.__name__}", (CreditMixin, base), {"mode": mode, "__doc__": f"verl's {mode} trainer."}
    )
    register_trainer(f"agentic_{mode}")(cls)


_register(trainer_sync.PPOTrainerSync, "sync")
_register(trainer_colocate_async.PPOTrainerColocateAsync, "colocate_async")
_register(trainer_separate_async.PPOTrainerSeparateAsync, "separate_async")
