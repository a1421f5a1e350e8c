"""Common code of importers of published datasets."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic import DataError, EnvRow, Message

from .env import Case, FunctionRow
from .gold import needed_arguments

_logger = logging.getLogger(__name__)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Returns the objects of a JSON list, or of a file with one JSON object per line.

    Raises:
        DataError: the file is missing or malformed.
    """
    if not path.is_file():
        raise DataError(f"no such data file, got {path}; name a local one")
    content = path.read_text(encoding="utf-8").strip()
    try:
        records = json.loads(content) if content.startswith("[") else [json.loads(x) for x in content.split("\n") if x]
    except ValueError as cause:
        raise DataError(f"{path} is neither a JSON list nor JSON lines, got {cause}; convert it") from cause
    if not all(isinstance(record, dict) for record in records):
        raise DataError(f"{path} must hold JSON objects, got {str(records)[:80]}; convert it")
    return records


def to_rows(
    records: Iterable[Mapping[str, Any]], convert: Callable[[Mapping[str, Any], int], EnvRow], *, path: Path, skip: bool
) -> list[EnvRow]:
    """Returns the rows of all records, each checked: its tools are JSON schemas, and its expected calls fit them.

    Raises:
        DataError: a record cannot become a row. With `skip` such records are left out with a warning, unless none is
            left.
    """
    rows, bad = [], []
    for number, record in enumerate(records):
        try:
            row = convert(record, number)
            _check_expected(FunctionRow.read(row))
            rows.append(row)
        except DataError as cause:
            if not skip:
                raise DataError(f"{path}, record {number}: {cause}") from cause
            bad.append(f"record {number}: {cause}")
    if bad and not rows:
        raise DataError(f"{path}: no record can become a row, got {bad[0]}")
    if bad:
        _logger.warning("%s: left out %d of %d records; the first: %s", path, len(bad), len(bad) + len(rows), bad[0])
    return rows


def make_row(
    *,
    source: str,
    task_id: str,
    prompt: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
    strings: str,
) -> EnvRow:
    """Returns a row; its case follows from the number of tools and calls."""
    names = {call["name"] for call in calls}
    many = "parallel" if len(names) == 1 else "parallel_multiple"
    case: Case = "irrelevance" if not calls else many if len(calls) > 1 else "single" if len(tools) == 1 else "multiple"
    return EnvRow(
        prompt=tuple(prompt),
        ground_truth=json.dumps(list(calls), ensure_ascii=False),
        data_source=source,
        extra={
            "task_id": task_id,
            "case": case,
            "tools": json.dumps(list(tools), ensure_ascii=False),
            "asks": "",
            "strings": strings,
        },
    )


def _check_expected(task: FunctionRow) -> None:
    for call in task.expected:
        for mismatch in task.schemas[call.name].mismatches(needed_arguments(call, task)):
            raise DataError(f"the expected call of {call.name!r} does not fit its schema, got {mismatch}; mend the row")
