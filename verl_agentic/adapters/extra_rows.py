"""Log-probs of rows that nobody has sampled: put beside a batch, computed by the actor, and taken away again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.utils.padding import response_from_nested


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


def most_tokens(rollout: Any) -> float:
    """Returns the length of the longest row that the engine takes, by the section `rollout`."""
    return rollout.log_prob_max_token_len_per_gpu if rollout.log_prob_use_dynamic_bsz else math.inf


def log_probs_of(
    trainer: Any,
    batch: Any,
    rows: Sequence[dict[str, Any]],
    *,
    keys: Sequence[str],
    beside: Sequence[int],
    asks: Mapping[str, Any] | None = None,
) -> torch.Tensor:
    """Returns nested `[rows, R]` log-probs of responses under the actor.

    Args:
        trainer: verl's, with an actor.
        batch: verl's batch.
        rows: columns as `extra_row` makes them; as many as the workers can share out evenly.
        keys: what the rows are called for as long as it takes.
        beside: row of the batch whose tag a row gets, of each.
        asks: what else workers are told with the batch.
    """
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
        fetched = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["log_probs", "response_mask"]
        )
        return response_from_nested(fetched["log_probs"], fetched["response_mask"])
    finally:
        tq.kv_clear(keys=keys, partition_id=batch.partition_id)
