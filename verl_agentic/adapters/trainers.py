"""verl's trainers, which tell estimators and losses what verl's drop: `trainer.v1.trainer_mode=agentic_<mode>`.

One mixin over verl's `sync`, `colocate_async` and `separate_async`. It reads columns that the agent loop has stored
with every row and hands them to the estimators; what a loss needs it stores beside them, where verl ships it to the
actor. `algorithm.length_lr.reference_tokens` scales the learning rate down when responses grow longer than that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1 import trainer_colocate_async, trainer_separate_async, trainer_sync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.workers.utils.padding import response_from_nested

from verl_agentic.adapters.self_teacher import store_teacher_log_probs
from verl_agentic.agent_loops.settings import GREEDY_SESSION
from verl_agentic.algorithms.advantage import advantage_names, load_advantage
from verl_agentic.algorithms.handover import Handover, handed_over
from verl_agentic.algorithms.length_lr import length_lr_factor
from verl_agentic.algorithms.step_groups import steps_of
from verl_agentic.errors import ConfigError
from verl_agentic.rewards.scored import PLACE

_FIELDS = ["extra_fields", "data_source", "turn_ids", "shared_ids", "sum_pi_squared", "response_mask"]
_GREEDY = {"remax", "safe_remax"}
_SUM_PI_SQUARED = {"optimal_token_baseline", "tir_optimal_token_baseline", "token_baseline"}


class CreditMixin:
    """What a trainer of verl's does in addition."""

    mode: str
    """verl's name of the trainer underneath."""
    config: Any

    def __init__(self, config: Any) -> None:
        """Builds the trainer; every other part of verl sees its own name for it."""
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode
        super().__init__(config)  # pyright: ignore[reportCallIssue]
        self._greedy: dict[str, float] = {}
        _check(config)

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = cast("Any", super())._next_train_batch(num_prompts)
        if self._estimator in _GREEDY:
            sampled = batch.get("__rollout_n__", None)
            if sampled is None:
                sampled = torch.full((len(batch),), int(self.config.actor_rollout_ref.rollout.n))
            batch["__rollout_n__"], batch[GREEDY_SESSION] = sampled + 1, sampled
        return batch

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if self._estimator in _GREEDY:
            batch, self._greedy = _take_greedy(batch)
        return cast("Any", super())._balance_batch(batch, *args, **kwargs)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info["calculate_sum_pi_squared"] = self._estimator in _SUM_PI_SQUARED
        batch.extra_info["calculate_mean_log_prob"] = self._loss == "rover"
        batch = cast("Any", super())._compute_old_log_prob(batch, metrics)
        return _keep_mean_log_prob(batch) if self._loss == "rover" else batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        columns = _columns(batch)
        if self._estimator in _GREEDY:
            columns["baseline_B"] = _baselines(batch.keys, self._greedy)
        with handed_over(Handover(columns=columns, metrics=metrics)):
            batch = cast("Any", super())._compute_advantage(batch, metrics)
        # verl ships the columns that the batch names: those of the last one that was put.
        batch = _store_for_losses(batch, columns)
        if self._loss == "sdpo":
            batch = store_teacher_log_probs(self, batch, outcome_B=_outcomes(columns).tolist())
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        reference = OmegaConf.select(self.config, "algorithm.length_lr.reference_tokens")
        if reference is not None:
            factor = length_lr_factor(_mean_length(batch), reference_length=float(reference))
            batch.extra_info["lr_scale"] = metrics["actor/lr_scale"] = factor
        batch.extra_info["calculate_mean_log_prob"] = self._loss == "rover"
        return cast("Any", super())._update_actor(batch, metrics)

    @property
    def _estimator(self) -> str:
        return str(self.config.algorithm.adv_estimator)

    @property
    def _loss(self) -> str:
        return str(OmegaConf.select(self.config, "actor_rollout_ref.actor.policy_loss.loss_mode"))


def _check(config: Any) -> None:
    """Refuses what cannot work before anything is played."""
    name = str(config.algorithm.adv_estimator)
    options = (config.algorithm.get("credit") or {}).get("options") or {}
    if name in advantage_names():
        load_advantage(name).check_options(options)
    strategy = config.actor_rollout_ref.actor.strategy
    if config.algorithm.get("length_lr") and strategy not in ("fsdp", "fsdp2"):
        raise ConfigError(f"algorithm.length_lr works with actor.strategy fsdp and fsdp2, got {strategy!r}; unset it")


def _columns(batch: Any) -> dict[str, Any]:
    """Returns what the agent loop has stored with the rows of a batch, where it has."""
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
    width = max(len(row) for row in fetched["response_mask"].unbind())
    columns: dict[str, Any] = {"uses_B": torch.tensor([int(tag.get("uses", 1)) for tag in batch.tags])}
    for ours, stored, filler in (("turn_ids_BT", "turn_ids", 0), ("shared_BT", "shared_ids", -1)):
        if stored in fetched:
            columns[ours] = _padded(fetched[stored], width=width, filler=filler)
    if "sum_pi_squared" in fetched:
        response = response_from_nested(fetched["sum_pi_squared"], fetched["response_mask"])
        columns["sum_pi_squared_BT"] = _padded(response, width=width, filler=0)
    if "data_source" in fetched:
        sources = [str(_plain(source)) for source in fetched["data_source"]]
        columns["source_B"] = torch.tensor([sorted(set(sources)).index(source) for source in sources])
    if "extra_fields" in fetched:
        columns.update(_of_extra([_plain(extra) for extra in fetched["extra_fields"]]))
    return columns


def _of_extra(extras: Sequence[Any]) -> dict[str, Any]:
    """Returns what lies in the extra fields that every loop may fill: reward parts of any, the rest of `env_agent`."""
    infos = [extra.get("reward_extra_info") or {} for extra in extras]
    shared = set.intersection(*({name for name, v in info.items() if isinstance(v, int | float)} for info in infos))
    columns: dict[str, Any] = {
        "parts": {name: torch.tensor([float(info[name]) for info in infos]) for name in sorted(shared)}
    }
    if all(PLACE in extra for extra in extras):
        # The rows of other loops repeat the score of their session: verl's rule holds, the last row counts.
        columns["is_paid"] = torch.ones(len(extras))
        columns["is_side_B"] = torch.tensor([extra[PLACE] == "side" for extra in extras])
        columns["steps"] = steps_of([extra.get("steps") or [] for extra in extras], torch.device("cpu"))
    return columns


def _padded(nested: torch.Tensor, *, width: int, filler: int) -> torch.Tensor:
    rows = [row[:width] for row in nested.unbind()]
    out = torch.full((len(rows), width), filler, dtype=rows[0].dtype)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out


def _plain(value: Any) -> Any:
    return getattr(value, "data", value)


def _take_greedy(batch: Any) -> tuple[Any, dict[str, float]]:
    """Returns the batch without its greedy sessions, and what the greedy session of each prompt earned."""
    fields = [GREEDY_SESSION, "rm_scores", "response_mask"]
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    columns = (fetched[GREEDY_SESSION].tolist(), fetched["rm_scores"].unbind(), fetched["response_mask"].unbind())
    earned: dict[str, float] = {}
    keep, taken = [], []
    for place, (key, greedy, rewards, mask) in enumerate(zip(batch.keys, *columns, strict=True)):
        uid, session, _ = key.rsplit("_", 2)
        if int(session) != greedy:
            keep.append(place)
            continue
        taken.append(key)
        if bool(mask.any()):
            earned[uid] = earned.get(uid, 0.0) + float(rewards.sum())
    tq.kv_clear(keys=taken, partition_id=batch.partition_id)
    kept = dataclasses.replace(
        batch, keys=[batch.keys[place] for place in keep], tags=[batch.tags[place] for place in keep]
    )
    return kept, earned


def _baselines(keys: Sequence[str], greedy: dict[str, float]) -> torch.Tensor:
    """Returns `[B]` baselines; NaN, which takes a row out, where the greedy session of its prompt is void."""
    return torch.tensor([greedy.get(key.rsplit("_", 2)[0], float("nan")) for key in keys])


def _store_for_losses(batch: Any, columns: dict[str, Any]) -> Any:
    """Returns the batch with what policy losses may need and verl does not pass on: who is a sibling, and outcomes."""
    uids = [key.rsplit("_", 2)[0] for key in batch.keys]
    numbers = {uid: number for number, uid in enumerate(dict.fromkeys(uids))}
    group_B = torch.tensor([numbers[uid] for uid in uids])
    fields = {"credit_group": group_B, "credit_group_size": group_B.bincount()[group_B]}
    if "acc" in columns.get("parts", {}):
        fields["credit_outcome"] = columns["parts"]["acc"]
    return _put(batch, fields)


def _outcomes(columns: dict[str, Any]) -> torch.Tensor:
    if "acc" not in columns["parts"]:
        raise ConfigError(
            "the loss sdpo learns from siblings that did the task, got rewards without acc, only with "
            f"{sorted(columns['parts'])}; play episodes with env_agent, or return acc from the reward function"
        )
    return columns["parts"]["acc"]


def _keep_mean_log_prob(batch: Any) -> Any:
    """Returns the batch with what the policy said before its updates, under a name of its own."""
    fetched = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["mean_log_prob", "response_mask"]
    )
    means = response_from_nested(fetched["mean_log_prob"], fetched["response_mask"])
    return _put(batch, {"old_mean_log_prob": means})


def _put(batch: Any, fields: dict[str, torch.Tensor]) -> Any:
    stored = TensorDict(fields, batch_size=len(batch.keys))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=stored)


def _mean_length(batch: Any) -> float:
    """Returns the mean number of sampled tokens of the rows that have any."""
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
