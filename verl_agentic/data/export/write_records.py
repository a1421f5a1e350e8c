"""Writes records as parquet or JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_agentic.base.errors import ConfigError
from verl_agentic.log.files.record_files import refuse_dates, write_json_lines

_BATCH = 256


def write_records(records: Iterable[Mapping[str, Any]], path: Path, *, columns: Mapping[str, pa.DataType]) -> int:
    """Writes the columns of records atomically, a batch at a time; returns how many.

    Raises:
        ConfigError: the name ends neither with `.parquet` nor with `.jsonl`.
        DataError: JSON lines cannot hold the values.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        raise ConfigError(f"--out must end with .parquet or .jsonl, got {path}; rename it")
    if path.suffix == ".jsonl":
        lines = ({name: record[name] for name in columns} for record in records)
        return write_json_lines(refuse_dates(lines, path), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    schema, remaining, count = pa.schema(list(columns.items())), iter(records), 0
    try:
        with pq.ParquetWriter(partial, schema) as writer:
            for batch in _iter_batches(remaining):
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                count += len(batch)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _iter_batches(records: Iterator[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := [dict(record) for record in islice(records, _BATCH)]:
        yield batch
