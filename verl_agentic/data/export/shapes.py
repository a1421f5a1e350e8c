"""Columns of the files of an export."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

_INTS, _BITS, _FLOATS = pa.list_(pa.int32()), pa.list_(pa.int8()), pa.list_(pa.float32())
_GROUP = {"uid": pa.string(), "step": pa.int32(), "env": pa.string(), "task_id": pa.string()}
NAMED = {
    **_GROUP,
    **dict.fromkeys(("session", "index"), pa.int32()),
    **dict.fromkeys(("data_source", "split", "place", "role", "stop_reason"), pa.string()),
    **dict.fromkeys(("guided", "branched"), pa.bool_()),
    **dict.fromkeys(("acc", "reward"), pa.float64()),
}
"""Columns of the log that every training row has."""
ROW_IDS = {"prompt_ids": _INTS, "response_ids": _INTS, "response_mask": _BITS}
PER_TOKEN = {"turn_ids": _INTS, "rollout_log_probs": _FLOATS, "token_rewards": _FLOATS}
_STREAM = {"input_ids": _INTS, "loss_mask": _BITS}
_PAIR = {
    "prompt_ids": _INTS,
    **{"chosen_ids": _INTS, "chosen_mask": _BITS, "rejected_ids": _INTS, "rejected_mask": _BITS},
    **dict.fromkeys(("chosen_value", "rejected_value"), pa.float64()),
}
SHAPES: Mapping[str, Mapping[str, pa.DataType]] = {
    "sft": {**_STREAM, **NAMED},
    "pairs": {**_PAIR, "turn": pa.int32(), **_GROUP},
    "outcomes": {**ROW_IDS, "turn_ids": _INTS, "outcome": pa.float64(), **NAMED},
    "steps": {
        **ROW_IDS,
        **{"outcome": pa.float64(), "continuations": pa.int32(), "turn": pa.int32()},
        **_GROUP,
    },
    "rows": {**ROW_IDS, **PER_TOKEN, **NAMED},
    "cpt": {**_STREAM, **NAMED},
}
"""Shape -> column -> type."""
