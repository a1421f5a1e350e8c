"""Columns of a `CreditBatch` from the data that agent loops stored with the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
import transfer_queue as tq
from verl.workers.utils.padding import response_from_nested

from verl_agentic.credit.batch_metrics.diversity import sequence_keys
from verl_agentic.credit.credit.step_groups import steps_of
from verl_agentic.rewards.verl_result import AGENT, PLACE
from verl_agentic.verl.batches.row_store import unwrap

# Columns of whole rows, as engines return them.
_OF_ENGINES = {"sum_pi_squared_BT": "sum_pi_squared", "target_values_BT": "target_values"}
_FIELDS = ["extra_fields", "data_source", "turn_ids", "shared_ids", "responses", "response_mask", *_OF_ENGINES.values()]


def stored_columns(batch: Any) -> dict[str, Any]:
    """Returns the columns that the agent loop stored with the rows of a batch."""
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
    width = max(len(row) for row in fetched["response_mask"].unbind())
    columns: dict[str, Any] = {"uses_B": torch.tensor([int(tag.get("uses", 1)) for tag in batch.tags])}
    for ours, stored, filler in (("turn_ids_BT", "turn_ids", 0), ("shared_BT", "shared_ids", -1)):
        if stored in fetched:
            columns[ours] = _pad_rows(fetched[stored], width=width, filler=filler)
    if "responses" in fetched:
        ids_BT, mask_BT = (_pad_rows(fetched[name], width=width, filler=0) for name in ("responses", "response_mask"))
        columns["text_B"] = sequence_keys(ids_BT, mask_BT.bool())
    for ours, stored in _OF_ENGINES.items():
        if stored in fetched:
            response = response_from_nested(fetched[stored], fetched["response_mask"])
            columns[ours] = _pad_rows(response, width=width, filler=0)
    if "data_source" in fetched:
        sources: dict[str, int] = {}
        names = [str(unwrap(source)) for source in fetched["data_source"]]
        columns["source_B"] = torch.tensor([sources.setdefault(name, len(sources)) for name in names])
    if "extra_fields" in fetched:
        columns.update(_of_extra([unwrap(extra) for extra in fetched["extra_fields"]]))
    return columns


def _of_extra(extras: Sequence[Any]) -> dict[str, Any]:
    """Returns columns from extra fields: reward parts of any loop, others of `env_agent`."""
    infos = [extra.get("reward_extra_info") or {} for extra in extras]
    names = sorted({name for info in infos for name, value in info.items() if isinstance(value, Real)})
    # NaN if a row lacks a part; void rows lack those of the rubric.
    parts = {name: torch.tensor([_to_float(info.get(name)) for info in infos]) for name in names}
    columns: dict[str, Any] = {"parts": parts}
    if all(PLACE in extra for extra in extras):
        columns["is_side_B"] = torch.tensor([extra[PLACE] == "side" for extra in extras])
        columns["agents"] = tuple(extra.get(AGENT, "") for extra in extras)
        columns["steps"] = steps_of([extra.get("steps") or [] for extra in extras], torch.device("cpu"))
    return columns


def _to_float(value: Any) -> float:
    return float(value) if isinstance(value, Real) else math.nan


def _pad_rows(nested: torch.Tensor, *, width: int, filler: int) -> torch.Tensor:
    rows = [row[:width] for row in nested.unbind()]
    out = torch.full((len(rows), width), filler, dtype=rows[0].dtype)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out
