"""The two tables of a run's log, and their JSON Schema.

`trajectories` has a record per training row, written by the process that played it; `updates` has one per row that a
step trained on, written by the trainer. `(uid, session, index)` joins them; a row that is replayed has several updates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

VERSION = 2
"""Of both tables; a reader refuses another one."""
KEY = ("uid", "session", "index")
"""Names a row in both tables."""

_INTS, _FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string()), ("calls", pa.string())])
_CALL = pa.struct(
    [
        ("name", pa.string()),
        ("arguments", pa.string()),
        ("result", pa.string()),
        ("is_error", pa.bool_()),
        ("error_kind", pa.string()),
        ("elapsed_s", pa.float32()),
    ]
)
_TURN = pa.struct(
    [
        ("index", pa.int32()),
        ("text", pa.string()),
        ("content", pa.string()),
        ("calls", pa.list_(_CALL)),
        ("observations", pa.list_(pa.string())),
        ("num_tokens", pa.int32()),
        ("mean_log_prob", pa.float64()),
        ("reward", pa.float64()),
    ]
)
_SEGMENT = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("kind", pa.string()), ("turn", pa.int32())])
_SPAN = pa.struct(
    [
        ("kind", pa.string()),
        ("label", pa.string()),
        ("turn", pa.int32()),
        ("start_s", pa.float32()),
        ("end_s", pa.float32()),
    ]
)
_NUMBERS = pa.map_(pa.string(), pa.float64())

# name -> (type, whether it belongs to the summary, meaning)
_KEY_FIELDS: dict[str, tuple[pa.DataType, bool, str]] = {
    "uid": (pa.string(), True, "names the group: one prompt of one step; no other group of the run has it"),
    "session": (pa.int32(), True, "number of the trajectory in its group"),
    "index": (pa.int32(), True, "number of the training row in its session; above 0 where context was shortened"),
}
_TRAJECTORY_FIELDS: dict[str, tuple[pa.DataType, bool, str]] = {
    **_KEY_FIELDS,
    "split": (pa.string(), True, "train or val"),
    "step": (pa.int32(), True, "training step that it was played for, from 1; 0 outside of training"),
    "place": (pa.string(), True, "of the row in its session: last, earlier, or side (a sub-agent's)"),
    "role": (pa.string(), True, "policy, greedy (a baseline that is not trained on) or external (played by a script)"),
    "loop": (pa.string(), True, "name of the agent loop"),
    "env": (pa.string(), True, "id of the environment; empty for other loops than env_agent"),
    "task_id": (pa.string(), True, "the row's extra_info.task_id, else its index; may be empty"),
    "data_source": (pa.string(), True, "of the dataset's row"),
    "time": (pa.float64(), True, "when the episode ended, in seconds since 1970"),
    "seed": (pa.string(), False, "what the episode's own random choices are drawn from (also its request id)"),
    "temperature": (pa.float32(), False, "that the policy was sampled with"),
    "weights_min": (pa.int32(), True, "oldest version of the weights that sampled it"),
    "weights_max": (pa.int32(), True, "newest version of the weights that sampled it"),
    "stop_reason": (pa.string(), True, "why the episode ended; empty for other loops than env_agent"),
    "is_void": (pa.bool_(), True, "it says nothing about the policy and is not trained on"),
    "error": (pa.string(), True, "what failed, where it is void; empty otherwise"),
    "reward": (pa.float64(), True, "sum of token_rewards over all rows of the session; null while not known"),
    "acc": (pa.float64(), True, "raw outcome, before shaping; null when not known"),
    "num_turns": (pa.int32(), True, "turns of the policy in the session"),
    "num_calls": (pa.int32(), True, "tool calls in the session"),
    "num_call_errors": (pa.int32(), True, "calls that were not carried out or failed"),
    "tools": (pa.list_(pa.string()), True, "names of the tools that were called, each once"),
    "hacking": (pa.list_(pa.string()), True, "what it attempts of `hacking/*`: test_edits, git_history, network, ..."),
    "num_model_tokens": (pa.int32(), True, "tokens of this row with mask 1"),
    "num_response_tokens": (pa.int32(), True, "tokens of this row's response"),
    "numbers": (_NUMBERS, False, "all that is counted of the episode: reward/<part>, stop/<reason>, generate_s, ..."),
    "prompt_ids": (_INTS, False, "token ids of the prompt"),
    "response_ids": (_INTS, False, "token ids of the response: sampled tokens and observations"),
    "response_mask": (pa.list_(pa.int8()), False, "1 on tokens that are trained on"),
    "turn_ids": (_INTS, False, "turn of every response token; of verl's own loops, as the mask tells"),
    "rollout_log_probs": (_FLOATS, False, "log-probs under the policy that sampled; empty when it gave none"),
    "token_rewards": (_FLOATS, False, "what every response token earns"),
    "segments": (pa.list_(_SEGMENT), False, "spans [start, end) of the response of one author and turn, without gaps"),
    "spans": (pa.list_(_SPAN), False, "where the time went, in seconds since the episode began; on the last row"),
    "prompt": (pa.list_(_MESSAGE), False, "the conversation before the first turn; on the last row"),
    "turns": (pa.list_(_TURN), False, "what the policy did and was answered; arguments are JSON; on the last row"),
    "final_answer": (pa.string(), False, "what the policy gave as its answer; on the last row"),
    "ground_truth": (pa.string(), False, "of the dataset's row, as JSON; on the last row"),
    "extra": (pa.string(), False, "extra_info of the dataset's row, as JSON; on the last row"),
    "env_score": (pa.string(), False, "what the environment said of the outcome, as JSON; null when it did not score"),
    "score": (_NUMBERS, False, "what it was paid, by part; null when not known; on the last row"),
    "breach": (pa.string(), True, "what the audit of the process that played it found wrong; empty when nothing"),
}
_UPDATE_FIELDS: dict[str, tuple[pa.DataType, bool, str]] = {
    **_KEY_FIELDS,
    "trained_step": (pa.int32(), True, "training step whose update it was in"),
    "paid": (pa.float64(), True, "sum of the rewards of this row that reached the estimator, group parts included"),
    "mean_advantage": (pa.float64(), True, "over the tokens with mask 1; 0 where there are none"),
    "num_trained_tokens": (pa.int32(), True, "tokens with mask 1 that reached the update"),
    "advantages": (_FLOATS, False, "of every response token"),
    "returns": (_FLOATS, False, "the critic's targets; empty without a critic"),
    "values": (_FLOATS, False, "the critic's values; empty without a critic"),
    "old_log_probs": (_FLOATS, False, "log-probs under the trainer's policy before the update"),
    "entropies": (_FLOATS, False, "of the trainer's policy at every response token; empty when not computed"),
}


def _schema(fields: dict[str, tuple[pa.DataType, bool, str]], table: str) -> pa.Schema:
    written = [pa.field(name, kind, metadata={"doc": meaning}) for name, (kind, _, meaning) in fields.items()]
    return pa.schema(written, metadata={"table": table, "version": str(VERSION)})


TRAJECTORIES = _schema(_TRAJECTORY_FIELDS, "trajectories")
UPDATES = _schema(_UPDATE_FIELDS, "updates")
SCHEMAS = {"trajectories": TRAJECTORIES, "updates": UPDATES}
SUMMARY = {
    "trajectories": tuple(name for name, (_, is_summary, _) in _TRAJECTORY_FIELDS.items() if is_summary),
    "updates": tuple(name for name, (_, is_summary, _) in _UPDATE_FIELDS.items() if is_summary),
}
"""Columns that are small: what lists and curves are made of."""


def json_schema(table: str) -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of a record of a table, as `to_pylist` gives it."""
    fields = SCHEMAS[table]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"verl_agentic {table}, version {VERSION}",
        "type": "object",
        "properties": {
            field.name: {**_json_type(field.type), "description": field.metadata[b"doc"].decode()} for field in fields
        },
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }


def _json_type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        parts = {kind.field(index).name: _json_type(kind.field(index).type) for index in range(kind.num_fields)}
        return {"type": ["object", "null"], "properties": parts}
    if pa.types.is_map(kind):
        pair = {"type": "array", "prefixItems": [{"type": "string"}, _json_type(kind.item_type)]}
        return {"type": ["array", "null"], "items": pair}
    if pa.types.is_list(kind):
        return {"type": ["array", "null"], "items": _json_type(kind.value_type)}
    names = {pa.types.is_string: "string", pa.types.is_boolean: "boolean", pa.types.is_integer: "integer"}
    found = next((name for matches, name in names.items() if matches(kind)), "number")
    return {"type": [found, "null"]}


def _main() -> None:
    """Writes the schemas into a folder."""
    for table in SCHEMAS:
        path = Path(sys.argv[1]) / f"{table}.schema.json"
        path.write_text(json.dumps(json_schema(table), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _main()
