"""A sample as columns of a run's log, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.types import Reward
from verl_agentic.rewards.sample import Sample

_VERSION = 1


def to_columns(sample: Sample) -> dict[str, Any]:
    """Returns the sample's columns of `log.schema.TRAJECTORIES`, as plain data."""
    record = sample.to_dict()
    return {
        "task_id": sample.id.rpartition("/")[0],
        "data_source": sample.data_source,
        "stop_reason": sample.stop_reason.value,
        "prompt": [_to_message(message) for message in record["prompt"]],
        "turns": [_to_turn(turn) for turn in record["turns"]],
        "final_answer": sample.final_answer,
        "ground_truth": _dump_json(sample.ground_truth),
        "extra": _dump_json(record["extra"]),
        "env_score": None if sample.env is None else _dump_json(record["env"]),
    }


def from_columns(record: Mapping[str, Any]) -> Sample:
    """Returns the sample of a line of the log. Raises DataError if a field is missing or of the wrong form."""
    return Sample.from_dict(
        {
            "version": _VERSION,
            "id": f"{record['task_id']}/{record['session']}",
            "prompt": [_from_message(message) for message in record["prompt"]],
            "turns": [_from_turn(turn) for turn in record["turns"]],
            "final_answer": record["final_answer"],
            "stop_reason": record["stop_reason"],
            "ground_truth": json.loads(record["ground_truth"]),
            "data_source": record["data_source"],
            "extra": json.loads(record["extra"]),
            "env": None if record["env_score"] is None else json.loads(record["env_score"]),
        }
    )


def score_of(reward: Reward | None) -> dict[str, float] | None:
    """Returns an environment's reward as a stored score; None if it did not score."""
    if reward is None or not reward.is_scored:
        return None
    parts = {f"reward/{name}": value for name, value in reward.parts.items()}
    return {"acc": reward.outcome, "score": reward.total, **parts}


def _to_message(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    return {
        "role": message["role"],
        "content": message["content"],
        "name": message.get("name", ""),
        "calls": _dump_json(calls) if calls else "",
    }


def _from_message(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = {"tool_calls": json.loads(message["calls"])} if message["calls"] else {}
    return {"role": message["role"], "content": message["content"], "name": message["name"], **calls}


def _to_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {**turn, "calls": [{**call, "arguments": _dump_json(call["arguments"])} for call in turn["calls"]]}


def _from_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {**turn, "calls": [{**call, "arguments": json.loads(call["arguments"])} for call in turn["calls"]]}


def _dump_json(value: Any) -> str:
    return json.dumps(value, default=_to_list)


def _to_list(value: Any) -> Any:
    """Converts numpy arrays and scalars, which rows from parquet may have, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
