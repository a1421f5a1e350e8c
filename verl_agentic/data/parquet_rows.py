"""Reads rows of parquet as `datasets` reads them, and with it verl."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verl_agentic.errors import DataError, boundary

_BATCH = 256

_Decode = Callable[[Any], Any]


def read_parquet(
    path: Path, *, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file; JSON columns (`extension<arrow.json>`, at any depth) as the values that they hold.

    Args:
        path: of the file.
        columns: those to read; names that the file does not have are left out. None: all.
        row_groups: those to read. None: all.

    Raises:
        DataError: the file is missing or cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"no such data file, got {path}; create it first")
    try:
        opened = pq.ParquetFile(path)
    except pa.ArrowException as cause:
        raise DataError(f"reading {path} failed: the file is not parquet, got {cause}; write it again") from cause
    with boundary(DataError, f"reading {path}"), opened as file:
        names = columns and [name for name in columns if name in file.schema_arrow.names]
        decoders = {field.name: decode for field in file.schema_arrow if (decode := _decoder(field.type)) is not None}
        for batch in file.iter_batches(_BATCH, row_groups=row_groups, columns=names):
            for row in batch.to_pylist():
                for name in decoders.keys() & row.keys():
                    row[name] = decoders[name](row[name])
                yield row


def _decoder(arrow_type: Any) -> _Decode | None:
    """Returns a function that decodes the JSON in values of a type; None if there is none in it."""
    import pyarrow as pa

    if getattr(arrow_type, "extension_name", "") == "arrow.json":
        from datasets import Json  # decodes numbers as verl gets them

        return Json().decode_example
    if pa.types.is_struct(arrow_type):
        inner = {field.name: decode for field in arrow_type if (decode := _decoder(field.type)) is not None}
        return partial(_decode_fields, inner) if inner else None
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        item = _decoder(arrow_type.value_type)
        return partial(_decode_items, item) if item else None
    return None


def _decode_fields(decoders: dict[str, _Decode], value: dict[str, Any] | None) -> dict[str, Any] | None:
    return value and {**value, **{name: decode(value[name]) for name, decode in decoders.items()}}


def _decode_items(decode: _Decode, value: list[Any] | None) -> list[Any] | None:
    return value and [decode(item) for item in value]
