"""Log-probs of extra rows that were not sampled: added to a batch, computed by the actor, and removed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.utils.padding import response_from_nested

from verl_agentic.base.errors import ConfigError, DataError, PluginError
from verl_agentic.verl.batches.row_store import unwrap


def extra_row(prompt: torch.Tensor, response: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    """Returns the columns of a row; all arguments are `[.]` int64 without padding."""
    input_ids = torch.cat([prompt, response])
    return {
        "prompts": prompt,
        "responses": response,
        "input_ids": input_ids,
        "position_ids": torch.arange(len(input_ids)),
        "response_mask": mask,
        "loss_mask": mask,
        "multi_modal_inputs": {},
    }


def max_row_tokens(config: Any) -> float:
    """Returns the maximum row length of the actor's engine."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    if not rollout.log_prob_use_dynamic_bsz:
        return math.inf
    shared_by = [
        OmegaConf.select(actor, key) or 1
        for key in ("ulysses_sequence_parallel_size", "megatron.context_parallel_size")
    ]
    return rollout.log_prob_max_token_len_per_gpu * max(shared_by)


def check_router_replay(config: Any, *, feature: str) -> None:
    """Raises ConfigError for router replay (mode R3), because extra rows have no sampled routes."""
    for engine in ("megatron", "veomni"):
        key = f"actor_rollout_ref.actor.{engine}.router_replay.mode"
        if OmegaConf.select(config, key) == "R3":
            raise ConfigError(f"{feature} computes rows that were never sampled, got {key}=R3; set R2 or disabled")


def log_probs_of(
    trainer: Any, batch: Any, rows: Sequence[dict[str, Any]], *, keys: Sequence[str], beside: Sequence[int]
) -> torch.Tensor:
    """Returns nested `[rows, R]` log-probs of responses under the actor; see `compute_columns`."""
    return compute_columns(trainer, batch, rows, keys=keys, beside=beside)["log_probs"]


def compute_columns(
    trainer: Any,
    batch: Any,
    rows: Sequence[dict[str, Any]],
    *,
    keys: Sequence[str],
    beside: Sequence[int],
    asks: Mapping[str, Any] | None = None,
    answers: Sequence[str] = (),
) -> dict[str, torch.Tensor]:
    """Returns `log_probs` of responses under the actor, nested `[rows, R]`, and further columns.

    Args:
        trainer: verl's, with an actor.
        batch: verl's batch.
        rows: columns of `extra_row`; their number is divisible by the workers.
        keys: temporary keys of the rows.
        beside: for each row, the batch row whose tag it gets.
        asks: further options for the workers.
        answers: columns that workers give if they know `asks`.

    Raises:
        DataError: the model's prompts have more than text.
        PluginError: the workers lack a column of `answers`.
    """
    _check_text_only(batch, beside)
    keys = list(keys)
    tags = [
        {**batch.tags[place], "prompt_len": len(row["prompts"]), "seq_len": len(row["input_ids"])}
        for place, row in zip(beside, rows, strict=True)
    ]
    fields = list_of_dict_to_tensordict(list(rows))
    try:
        tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields, tags=tags)
        temperature = trainer.config.actor_rollout_ref.rollout.temperature
        info = {"calculate_entropy": False, "compute_loss": False, "temperature": temperature, **(asks or {})}
        trainer.actor_rollout_wg.compute_log_prob(dataclasses.replace(batch, keys=keys, tags=tags, extra_info=info))
        names = ["log_probs", "response_mask", *answers]
        fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=names)
        if missing := [name for name in answers if name not in fetched]:
            raise PluginError(
                f"workers of the actor have given no {missing[0]}: their processes lack the plugin; install "
                "verl-agentic on every node, and see what `verl-agentic doctor` says there"
            )
        log_probs = response_from_nested(fetched["log_probs"], fetched["response_mask"])
        return {**{name: fetched[name] for name in answers}, "log_probs": log_probs}
    finally:
        tq.kv_clear(keys=keys, partition_id=batch.partition_id)


def _check_text_only(batch: Any, places: Sequence[int]) -> None:
    keys = [batch.keys[place] for place in dict.fromkeys(places)]
    fields = ["position_ids", "multi_modal_inputs"]
    fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
    positions = fetched["position_ids"].unbind() if "position_ids" in fetched else []
    inputs = list(fetched["multi_modal_inputs"]) if "multi_modal_inputs" in fetched else []
    if any(row.dim() > 1 for row in positions) or any(map(unwrap, inputs)):
        raise DataError(
            "rows are made anew of prompts that are text, got some with images or with positions of several "
            "dimensions; unset algorithm.prompt_information, and take another loss than sdpo"
        )
