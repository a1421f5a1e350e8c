"""Copies some rows of a data file unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verl_agentic.base.errors import ConfigError


def write_kept(path: Path, is_kept: np.ndarray, out: Path) -> int:
    """Writes the rows of a mask to another file of the same format, atomically; returns their number.

    Args:
        path: JSON lines or parquet.
        is_kept: [N] of all rows.
        out: has the suffix of `path`.

    Raises:
        ConfigError: the suffixes differ, or both paths are one file.
    """
    if out.suffix != path.suffix or out.resolve() == path.resolve():
        raise ConfigError(f"rows of {path} go into another {path.suffix} file, got {out}; change the path")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    try:
        (_write_parquet if path.suffix == ".parquet" else _write_lines)(path, is_kept, partial)
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return int(is_kept.sum())


def _write_parquet(path: Path, is_kept: np.ndarray, out: Path) -> None:
    import pyarrow.parquet as pq

    file, number = pq.ParquetFile(path), 0
    with pq.ParquetWriter(out, file.schema_arrow) as writer:
        for batch in file.iter_batches(4_096):
            writer.write_batch(batch.filter(is_kept[number : number + len(batch)]))
            number += len(batch)


def _write_lines(path: Path, is_kept: np.ndarray, out: Path) -> None:
    number = 0
    with path.open("rb") as source, out.open("wb") as target:
        for line in source:
            if line.strip():
                if is_kept[number]:
                    target.write(line if line.endswith(b"\n") else line + b"\n")
                number += 1
