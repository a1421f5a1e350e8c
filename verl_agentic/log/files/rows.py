"""Dataset rows in the form that verl's RLHFDataset reads, as JSON lines or parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message
from verl_agentic.log.files.as_verl import refuse_changed
from verl_agentic.log.files.parquet import VERL_KEYS, extra_of, ground_truth_of, to_columns
from verl_agentic.log.files.parquet_rows import write_parquet
from verl_agentic.log.files.record_files import numbered_records, refuse_dates, write_json_lines


def write_rows(rows: Iterable[EnvRow], path: Path) -> int:
    """Writes rows for `data.train_files` or `data.val_files`; returns how many.

    Args:
        path: parquet if the name ends with `.parquet`, else JSON lines.

    Raises:
        DataError: a value is none of JSON, or verl's dataset would read another one.
    """
    records = to_columns(list(rows))
    if path.suffix == ".parquet":
        write_parquet(records, path)
    else:
        write_json_lines(refuse_dates(records, path), path)
        if any(key in record["extra_info"] for record in records for key in VERL_KEYS):
            _refuse_changed(path)
    return len(records)


def _refuse_changed(path: Path) -> None:
    try:
        refuse_changed(path)
    except DataError:
        path.unlink()
        raise


def read_rows(path: Path) -> list[EnvRow]:
    """Reads the rows of a file: JSON lines, `.json` or parquet.

    Raises:
        DataError: the file is missing or a line is not a row.
    """
    return [row_of_columns(row, f"{path}:{number}") for number, row in numbered_records(path)]


def row_of_columns(row: Mapping[str, Any], where: str) -> EnvRow:
    """Returns a row from columns in verl's form.

    Raises:
        DataError: a column is missing or malformed; the message begins with `where`.
    """
    missing = sorted({"prompt", "reward_model"} - set(row))
    if missing:
        raise DataError(f"{where} lacks {missing}, got the keys {sorted(row)}; a row has prompt and reward_model")
    prompt, reward_model = row["prompt"], row["reward_model"]
    if not isinstance(prompt, list) or not prompt or not all(isinstance(message, dict) for message in prompt):
        raise DataError(f"{where}: prompt must be a list of messages, got {prompt!r}; write role and content of each")
    if not isinstance(reward_model, dict):
        raise DataError(f"{where}: reward_model must be an object, got {reward_model!r}; put ground_truth into one")
    try:
        messages = tuple(Message.from_dict(message) for message in prompt)
    except DataError as cause:
        raise DataError(f"{where}: {cause}") from cause
    return EnvRow(
        prompt=messages,
        ground_truth=ground_truth_of(reward_model, where),
        data_source=row.get("data_source") or "",
        extra=extra_of(row.get("extra_info"), where),
    )
