"""Files of JSON objects: JSON lines, lists of JSON, and parquet."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.log.files.parquet_rows import read_parquet
from verl_agentic.log.files.plain_values import looks_like_date

PARQUET_REMEDY = "write parquet: a file name that ends with .parquet, for `verl_agentic.write_rows`"
"""What keeps values that the JSON reader of `datasets` would change."""


def write_json_lines(records: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Writes one JSON object per line; returns how many. The file is written atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def refuse_dates(records: Iterable[Mapping[str, Any]], path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields records for JSON lines. verl's dataset makes times of a column in which all texts look like dates.

    Conversations for SFT (`messages`) are not looked at: verl's SFT reads parquet only.

    Raises:
        DataError: after the last record, if there is such a column.
    """
    are_dates: dict[str, bool] = {}
    for record in records:
        for column, text in _iter_texts({key: value for key, value in record.items() if key != "messages"}, ""):
            are_dates[column] = are_dates.get(column, True) and looks_like_date(text)
        yield record
    if columns := sorted(column for column, is_dated in are_dates.items() if is_dated):
        raise DataError(
            f"{path}: all texts of {columns} look like dates, and verl's dataset makes times of them in JSON lines; "
            f"{PARQUET_REMEDY}"
        )


def _iter_texts(value: Any, column: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield column, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iter_texts(item, f"{column}.{key}" if column else key)
    elif isinstance(value, list) and value and not isinstance(value[0], int | float):
        for item in value:
            yield from _iter_texts(item, f"{column}[]")


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number from 1, object) of a file of JSON objects, one per line; blank lines are skipped.

    Raises:
        DataError: the file is missing, or a line is not a JSON object.
    """
    if not path.is_file():
        raise DataError(f"no such data file, got {path}; create it first")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not line.strip():
                continue
            excerpt = line[:80].decode(errors="replace")
            try:
                record = json.loads(line.decode())
            except ValueError as cause:
                raise DataError(f"{path}:{number} is not JSON, got {excerpt!r}; write one object per line") from cause
            if not isinstance(record, dict):
                raise DataError(f"{path}:{number} is not a JSON object, got {excerpt!r}; write one object per line")
            yield number, record


def numbered_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number from 1, record) of a file: parquet, JSON lines, or `.json` with a list of objects.

    The one reader of rows for all commands. Parquet is read as verl's dataset reads it. `changed_values` reports what
    verl's dataset makes of JSON.

    Raises:
        DataError: it is missing or cannot be parsed.
    """
    if path.suffix == ".parquet":
        yield from enumerate(read_parquet(path), start=1)
    elif path.suffix == ".json" and _holds_list(path):
        yield from enumerate(_read_json_list(path), start=1)
    else:
        yield from read_json_lines(path)


def _holds_list(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _read_json_list(path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as cause:
        raise DataError(f"{path} is not JSON, got {cause}; write a list of objects, or one object per line") from cause
    if not all(isinstance(record, dict) for record in records):
        raise DataError(f"{path} must be a list of objects; write one object for each row")
    return records
