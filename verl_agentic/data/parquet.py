"""Conversion between rows and typed columns of Arrow.

Arrow (parquet, and the JSON reader of `datasets`) gives every row of a struct column the keys of all rows, and fills
missing ones with None. It refuses keys whose type differs between rows. So only keys of one simple type in all rows
stay columns. The rest of `extra_info` becomes JSON text under `extra_json`. A `ground_truth` that is not a simple value
becomes JSON text with `reward_model.format` = `json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.env import EnvRow
from verl_agentic.errors import DataError
from verl_agentic.types import Message

EXTRA_JSON = "extra_json"
VERL_KEYS = ("tools_kwargs", "interaction_kwargs")
"""Keys of `extra_info` that verl reads as objects; never encoded."""
BY_ENVIRONMENT = "environment"
"""`reward_model.style` of rows without ground truth, whose environment or judge scores the episodes. verl does not read
the style."""
_SIMPLE = (str, int, float, bool)


def to_columns(rows: Sequence[EnvRow], *, shown: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Returns the columns that verl's RLHFDataset reads, one object per row; `extra_info.index` is the row's number.

    Args:
        rows: of one file.
        shown: the keys of `extra` that stay outside `extra_json`. Files with equal `shown` have equal columns, so that
            verl can train on several environments. None leaves all keys of one simple type outside, and adds
            `extra_json` and `reward_model.format` only if needed.
    """
    keys = _simple_keys(rows) if shown is None else {*shown, *VERL_KEYS}
    simple = _SIMPLE if shown is None else (str,)
    is_json = not _is_one_type([row.ground_truth for row in rows], simple)
    return [
        {
            "data_source": row.data_source,
            "prompt": [_to_message(message.to_dict()) for message in row.prompt],
            "reward_model": _to_reward_model(row.ground_truth, is_json=is_json, is_always=shown is not None),
            "extra_info": {**_to_extra(row.extra, keys, is_always=shown is not None), "index": index},
        }
        for index, row in enumerate(rows)
    ]


def extra_of(extra_info: Mapping[str, Any] | None, where: str = "row") -> dict[str, Any]:
    """Returns `EnvRow.extra` of a row's `extra_info`; without keys that Arrow filled with None.

    Raises:
        DataError: `extra_json` is not a JSON object.
    """
    extra = {key: value for key, value in (extra_info or {}).items() if value is not None}
    text = extra.pop(EXTRA_JSON, None)
    if text is None:
        return extra
    decoded = _from_json(text, f"{where}: extra_info.{EXTRA_JSON}")
    if not isinstance(decoded, dict):
        raise DataError(
            f"{where}: extra_info.{EXTRA_JSON} must hold a JSON object, got {text[:80]!r}; write the file again"
        )
    return {**extra, **decoded}


def ground_truth_of(reward_model: Mapping[str, Any] | None, where: str = "row") -> Any:
    """Returns `EnvRow.ground_truth` of a row's `reward_model`.

    Raises:
        DataError: its format is `json`, but it is not JSON.
    """
    reward_model = reward_model or {}
    value = reward_model.get("ground_truth")
    if reward_model.get("format") == "json" and value is not None:
        return _from_json(value, f"{where}: reward_model.ground_truth")
    return value


def env_row(row: Mapping[str, Any]) -> EnvRow:
    """Returns the environment's row from a row of verl's dataset in an agent loop.

    Raises:
        DataError: a message or the ground truth is malformed.
    """
    return EnvRow(
        prompt=tuple(Message.from_dict(message) for message in row["raw_prompt"]),
        ground_truth=ground_truth_of(row.get("reward_model")),
        data_source=str(row.get("data_source", "")),
        extra=extra_of(row.get("extra_info")),
    )


def _simple_keys(rows: Sequence[EnvRow]) -> set[str]:
    """Returns the keys of `extra` that have the same simple type in all rows that have them."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.extra.items():
            values.setdefault(key, []).append(value)
    lists = {key for key, column in values.items() if all(map(_is_list_of_texts, column))}
    simple = {key for key, column in values.items() if _is_one_type(column, _SIMPLE) and None not in column}
    return lists | simple | set(VERL_KEYS)


def _is_one_type(values: Sequence[Any], allowed: tuple[type, ...]) -> bool:
    types = {type(value) for value in values if value is not None}
    return len(types) <= 1 and types <= set(allowed)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _to_extra(extra: Mapping[str, Any], keys: set[str], *, is_always: bool) -> dict[str, Any]:
    hidden = {key: value for key, value in extra.items() if key not in keys and key != "index"}
    columns = {key: value for key, value in extra.items() if key in keys}
    if hidden or is_always:
        columns[EXTRA_JSON] = json.dumps(hidden, ensure_ascii=False)
    return columns


def _to_reward_model(ground_truth: Any, *, is_json: bool, is_always: bool) -> dict[str, Any]:
    value = json.dumps(ground_truth, ensure_ascii=False) if is_json and ground_truth is not None else ground_truth
    form = {"format": "json" if is_json else "text"} if is_json or is_always else {}
    return {"style": BY_ENVIRONMENT if value is None else "rule", "ground_truth": value, **form}


def _to_message(message: dict[str, Any]) -> dict[str, Any]:
    # Calls of several tools have different arguments, so they become JSON text, as in OpenAI's API.
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return message


def _from_json(text: Any, where: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{where} is not JSON, got {str(text)[:80]!r}; write the file again") from cause
