"""Conversion between rows and typed columns of Arrow.

Arrow (parquet, and the JSON reader of `datasets`) gives every row of a struct column the keys of all rows, and fills
missing ones with None. It refuses keys whose type differs between rows. Its JSON reader makes times of texts that look
like dates, and floats of integers beyond 64 bits. So only keys of one simple type in all rows stay columns. The rest of
`extra_info` becomes JSON text under `extra_json`. A `ground_truth` that is not a simple value becomes JSON text with
`reward_model.format` = `json`.

A None inside an object of a column means that the key is not set. In JSON text, None is a value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message
from verl_agentic.log.files.plain_values import drop_nulls, looks_like_date, to_plain

EXTRA_JSON = "extra_json"
VERL_KEYS = ("tools_kwargs", "interaction_kwargs")
"""Keys of `extra_info` that verl reads as objects; never encoded."""
BY_ENVIRONMENT = "environment"
"""`reward_model.style` of rows without ground truth, whose environment or judge scores the episodes. verl does not read
the style."""
_SIMPLE = (str, int, float, bool)
_INT64 = range(-(2**63), 2**63)
_FLOAT_DIGITS = 9
_FIRST_ROWS = 64
"""Every column has a value in these rows: the JSON reader of `datasets` takes the types from the first 10 MB."""


def to_columns(rows: Sequence[EnvRow], *, shown: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Returns the columns that verl's RLHFDataset reads, one object per row; `extra_info.index` is the row's number.

    Args:
        rows: of one file.
        shown: the keys of `extra` that stay outside `extra_json`. Files with equal `shown` have equal columns, so that
            verl can train on several environments. None leaves all keys of one simple type outside, and adds
            `extra_json` and `reward_model.format` only if needed.
    """
    rows = [_to_plain_row(row, f"row {number}") for number, row in enumerate(rows)]
    keys = _simple_keys(rows) if shown is None else {*shown, *VERL_KEYS}
    simple = _SIMPLE if shown is None else (str,)
    truths = [row.ground_truth for row in rows]
    is_json = not _is_one_type(truths, simple) or not _is_kept(truths)
    is_filled, own_keys = shown is None, keys - set(VERL_KEYS)
    # In rows with `extra_json`, a None is a key that is not set, for reward functions as well.
    is_always = not is_filled or any(
        not own_keys <= row.extra.keys() or row.extra.keys() - keys - {"index"} for row in rows
    )
    return [
        {
            "data_source": row.data_source,
            "prompt": [_to_message(message, f"row {index}, prompt") for message in row.prompt],
            "reward_model": _to_reward_model(row.ground_truth, is_json=is_json, is_always=shown is not None),
            "extra_info": {**_to_extra(row.extra, keys, is_filled=is_filled, is_always=is_always), "index": index},
        }
        for index, row in enumerate(rows)
    ]


def extra_of(extra_info: Mapping[str, Any] | None, where: str = "row") -> dict[str, Any]:
    """Returns `EnvRow.extra` of a row's `extra_info`; without keys that are None, except in `extra_json`.

    Raises:
        DataError: it is no object, or `extra_json` is not a JSON object.
    """
    if not isinstance(extra_info, Mapping | None):
        raise DataError(
            f"{where}: extra_info must be an object, got {str(extra_info)[:80]!r}; if `datasets` wrote the file, give "
            "all rows the same keys, or write them with `verl_agentic.write_rows`"
        )
    extra = drop_nulls(extra_info or {})
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
    """Returns `EnvRow.ground_truth` of a row's `reward_model`; without keys that are None, except in JSON text.

    Raises:
        DataError: it is no object, or its format is `json` and it is not JSON.
    """
    if not isinstance(reward_model, Mapping | None):
        raise DataError(
            f"{where}: reward_model must be an object, got {str(reward_model)[:80]!r}; put ground_truth into one"
        )
    reward_model = reward_model or {}
    value = reward_model.get("ground_truth")
    if reward_model.get("format") == "json" and value is not None:
        return _from_json(value, f"{where}: reward_model.ground_truth")
    return drop_nulls(value)


def decoded_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a row of verl's dataset with the ground truth and `extra_info` as they were written.

    Columns without JSON text of `to_columns` stay as they are.

    Raises:
        DataError: the JSON text is malformed.
    """
    columns = dict(row)
    model, extra = row.get("reward_model"), row.get("extra_info")
    if isinstance(model, Mapping) and model.get("format") == "json":
        columns["reward_model"] = {"style": model.get("style"), "ground_truth": ground_truth_of(model)}
    if isinstance(extra, Mapping) and extra.get(EXTRA_JSON) is not None:
        columns["extra_info"] = extra_of(extra)
    return columns


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


def _to_plain_row(row: EnvRow, place: str) -> EnvRow:
    return replace(
        row,
        ground_truth=to_plain(row.ground_truth, f"{place}, ground_truth"),
        data_source=to_plain(row.data_source, f"{place}, data_source"),
        extra=to_plain(row.extra, f"{place}, extra"),
    )


def _simple_keys(rows: Sequence[EnvRow]) -> set[str]:
    """Returns the keys of `extra` that Arrow's JSON reader keeps as they are, and those that verl reads."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.extra.items():
            values.setdefault(key, []).append(value)
    lists = {key for key, column in values.items() if all(map(_is_list_of_texts, column))}
    simple = {key for key, column in values.items() if _is_one_type(column, _SIMPLE) and None not in column}
    first = {key for row in rows[:_FIRST_ROWS] for key, value in row.extra.items() if value != []}
    simple_keys = {
        key
        for key in lists | simple
        if (key in first or not any(values[key])) and _is_kept(values[key]) and key != EXTRA_JSON
    }
    return simple_keys | set(VERL_KEYS)


def _is_kept(value: Any) -> bool:
    """Returns whether the JSON reader of `datasets` keeps a value, or all of a list."""
    if isinstance(value, list):
        return all(map(_is_kept, value))
    if isinstance(value, str):
        return not looks_like_date(value)
    if isinstance(value, float):  # it rounds all floats of a file if keys of objects differ between rows
        return math.isfinite(value) and value == float(f"{value:.{_FLOAT_DIGITS}g}")
    return not isinstance(value, int) or value in _INT64


def _is_one_type(values: Sequence[Any], allowed: tuple[type, ...]) -> bool:
    types = {type(value) for value in values if value is not None}
    return len(types) <= 1 and types <= set(allowed)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _to_extra(extra: Mapping[str, Any], keys: set[str], *, is_filled: bool, is_always: bool) -> dict[str, Any]:
    hidden = {key: value for key, value in extra.items() if key not in keys and key != "index"}
    columns = {key: value for key, value in extra.items() if key in keys}
    if is_filled:  # else the JSON reader of `datasets` encodes the whole object, and rounds its floats
        columns = dict.fromkeys(sorted(keys - set(VERL_KEYS))) | columns
    if hidden or is_always:
        columns[EXTRA_JSON] = json.dumps(hidden, ensure_ascii=False)
    return columns


def _to_reward_model(ground_truth: Any, *, is_json: bool, is_always: bool) -> dict[str, Any]:
    value = json.dumps(ground_truth, ensure_ascii=False) if is_json and ground_truth is not None else ground_truth
    form = {"format": "json" if is_json else "text"} if is_json or is_always else {}
    return {"style": BY_ENVIRONMENT if value is None else "rule", "ground_truth": value, **form}


def _to_message(message: Message, place: str) -> dict[str, Any]:
    columns = to_plain(message.to_dict(), place)
    # Calls of several tools have different arguments, so they become JSON text, as in OpenAI's API.
    for call in columns.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return columns


def _from_json(text: Any, place: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{place} is not JSON, got {str(text)[:80]!r}; write the file again") from cause
