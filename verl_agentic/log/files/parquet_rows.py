"""Reads rows of parquet as `datasets` reads them, and with it verl; and writes such rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError, boundary
from verl_agentic.log.files.plain_values import differences

_BATCH = 256

_Decode = Callable[[Any], Any]


def read_parquet(
    path: Path, *, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file; JSON columns (`extension<arrow.json>`, at any depth) as the values that they hold.

    Args:
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
        decoders = {
            field.name: decode for field in file.schema_arrow if (decode := _find_decoder(field.type)) is not None
        }
        for batch in file.iter_batches(_BATCH, row_groups=row_groups, columns=names):
            for row in batch.to_pylist():
                for name in decoders.keys() & row.keys():
                    row[name] = decoders[name](row[name])
                yield row


def write_parquet(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes records as parquet atomically, and verifies them.

    Raises:
        DataError: there are no records, or Arrow has filled or changed a value.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not records:
        raise DataError(f"{path}: there are no rows to write; make some")
    with boundary(DataError, "turning the rows into columns"):
        table = pa.Table.from_pylist(list(records))
        table = pa.Table.from_pylist(list(records), schema=_with_types(table.schema))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    pq.write_table(table, partial)
    for number, (record, read) in enumerate(zip(records, pq.read_table(partial).to_pylist(), strict=True)):
        for field, before, after in differences("", record, read):
            if not _is_filled_message(field, before, after):
                partial.unlink()
                raise DataError(
                    f"row {number}, {field} was {before!r} and is {after!r} in parquet, which has one type for all "
                    "rows; give all rows the same keys"
                )
    partial.replace(path)


def _find_decoder(arrow_type: Any) -> _Decode | None:
    """Returns a function that decodes the JSON in values of a type; None if there is none in it."""
    import pyarrow as pa

    if getattr(arrow_type, "extension_name", "") == "arrow.json":
        from datasets import Json  # decodes numbers as verl gets them

        return Json().decode_example
    if pa.types.is_struct(arrow_type):
        inner = {field.name: decode for field in arrow_type if (decode := _find_decoder(field.type)) is not None}
        return partial(_decode_fields, inner) if inner else None
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        item = _find_decoder(arrow_type.value_type)
        return partial(_decode_items, item) if item else None
    return None


def _decode_fields(decoders: dict[str, _Decode], value: dict[str, Any] | None) -> dict[str, Any] | None:
    return value and {**value, **{name: decode(value[name]) for name, decode in decoders.items()}}


def _decode_items(decode: _Decode, value: list[Any] | None) -> list[Any] | None:
    return value and [decode(item) for item in value]


def _with_types(schema: Any) -> Any:
    """Returns the schema with the types of `tool_selection` and `ground_truth`, even if all rows have them empty."""
    import pyarrow as pa

    types = {"tool_selection": pa.list_(pa.string()), "ground_truth": pa.string()}
    for name in ("extra_info", "reward_model"):
        struct = pa.struct(
            [
                pa.field(inner.name, types[inner.name]) if _is_untyped(inner.type) and inner.name in types else inner
                for inner in schema.field(name).type
            ]
        )
        schema = schema.set(schema.get_field_index(name), pa.field(name, struct))
    return schema


def _is_untyped(arrow_type: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_null(arrow_type) or (pa.types.is_list(arrow_type) and pa.types.is_null(arrow_type.value_type))


def _is_filled_message(field: str, before: Any, after: Any) -> bool:
    """Returns whether Arrow filled a missing key of a message, which the reader reverts."""
    return field.startswith("prompt[") and before is ... and after is None
