"""Parts of data files that can be read independently of each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError, boundary
from verl_agentic.data.overlap.row_task import COLUMNS
from verl_agentic.log.files.parquet_rows import read_parquet

_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 4_096


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive rows of a file: a range of bytes of JSON lines, or of row groups of parquet."""

    path: Path
    start: int
    stop: int

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields (name of the row for messages, the columns that are compared).

        Raises:
            DataError: the file cannot be read.
        """
        with boundary(DataError, f"reading {self.path}"):
            yield from self._parquet_rows() if self.path.suffix == ".parquet" else self._json_rows()

    def _parquet_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        import pyarrow.parquet as pq

        metadata = pq.read_metadata(self.path)
        first = sum(metadata.row_group(group).num_rows for group in range(self.start))
        rows = read_parquet(self.path, columns=COLUMNS, row_groups=range(self.start, self.stop))
        for number, record in enumerate(rows, start=first):
            yield f"{self.path}: row {number}", record

    def _json_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with self.path.open("rb") as file:
            file.seek(self.start)
            while (place := file.tell()) < self.stop:
                line = file.readline()
                if not line.strip():
                    continue
                location = f"{self.path}: the row at byte {place}"
                try:
                    record = json.loads(line)
                except ValueError as cause:
                    raise DataError(f"{location} is not JSON, got {line[:80]!r}; write one object per line") from cause
                if not isinstance(record, dict):
                    raise DataError(f"{location} is not a JSON object, got {line[:80]!r}; write one object per line")
                yield location, record


def chunks_of(path: Path) -> list[Chunk]:
    """Divides a file. Raises DataError if it does not exist or is no parquet file."""
    if not path.is_file():
        raise DataError(f"no such data file, got {path}; create it first")
    cuts = _parquet_cuts(path) if path.suffix == ".parquet" else _json_cuts(path)
    return [Chunk(path=path, start=start, stop=stop) for start, stop in pairwise(cuts)]


def _parquet_cuts(path: Path) -> Sequence[int]:
    import pyarrow.parquet as pq

    with boundary(DataError, f"reading {path}"):
        metadata = pq.ParquetFile(path).metadata
    cuts, rows = [0], 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= _CHUNK_ROWS or group == metadata.num_row_groups - 1:
            cuts.append(group + 1)
            rows = 0
    return cuts


def _json_cuts(path: Path) -> Sequence[int]:
    size, cuts = path.stat().st_size, [0]
    with path.open("rb") as file:
        while cuts[-1] < size:
            file.seek(min(size, cuts[-1] + _CHUNK_BYTES))
            file.readline()
            cuts.append(file.tell())
    return cuts
