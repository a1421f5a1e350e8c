"""Records as Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

_NULLABLE = {"reward", "acc", "env_score", "score"}


def to_batch(records: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Returns records as a batch; a missing column is empty (null if the schema's doc says so).

    Raises:
        ValueError: a record has an unknown key.
        pyarrow.ArrowException, TypeError: a value is not of its column's type.
    """
    unknown = sorted({key for record in records for key in record} - set(schema.names))
    if unknown:
        raise ValueError(f"no such columns, got {unknown}; known: {schema.names}")
    return pa.RecordBatch.from_arrays([_make_column(records, field) for field in schema], schema=schema)


def completed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the columns of a schema; those that an older release did not write are empty."""
    missing = [{}] * batch.num_rows
    columns = [
        batch[field.name] if field.name in batch.schema.names else _make_column(missing, field) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _make_column(records: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    empty = None if field.name in _NULLABLE else _empty_value(field.type)
    values = [record.get(field.name, empty) for record in records]
    if pa.types.is_map(field.type):
        values = [list(value.items()) if isinstance(value, Mapping) else value for value in values]
    try:
        return pa.array(values, type=field.type)
    except UnicodeEncodeError:
        return pa.array(_replace_surrogates(values), type=field.type)


def _replace_surrogates(value: Any) -> Any:
    """Returns a value whose texts are valid UTF-8: lone surrogates, which models do write, are replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {key: _replace_surrogates(item) for key, item in value.items()}
    return type(value)(_replace_surrogates(item) for item in value) if isinstance(value, list | tuple) else value


def _empty_value(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return ""
    if pa.types.is_boolean(kind):
        return False
    return [] if pa.types.is_list(kind) or pa.types.is_map(kind) else 0
