"""Records of data sets: parquet, JSON lines, and folders that `datasets` has saved; values of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from verl_agentic.base.errors import ConfigError, DataError, boundary
from verl_agentic.log.files.record_files import numbered_records


def iter_records(source: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields (place, record) of a file or of a folder of `Dataset.save_to_disk`.

    Raises:
        ConfigError: a folder has several splits or is no such folder.
        DataError: the data cannot be read.
    """
    if not source.is_dir():
        for number, record in numbered_records(source):
            yield f"{source}:{number}", record
        return
    if (source / "dataset_dict.json").is_file():
        splits = sorted(path.name for path in source.iterdir() if path.is_dir())
        raise ConfigError(f"{source} has several splits, got {splits}; name one of these folders")
    if not (source / "state.json").is_file():
        raise ConfigError(f"a folder must be one of Dataset.save_to_disk, got {source}; name files, such as *.parquet")
    import datasets

    with boundary(DataError, f"reading {source}"):
        saved = cast("Iterable[dict[str, Any]]", datasets.load_from_disk(str(source)))
    for number, record in enumerate(saved, start=1):
        yield f"{source}:{number}", record


def find_value(record: Mapping[str, Any], column: str) -> Any:
    """Returns the value of a column, or at a dotted path into objects; `...` if there is none."""
    if column in record:
        return record[column]
    first, dot, rest = column.partition(".")
    inner = record.get(first) if dot else None
    return find_value(inner, rest) if isinstance(inner, Mapping) else ...


def choose_column(record: Mapping[str, Any], columns: Sequence[str], *, option: str, place: str) -> str:
    """Returns the first of some columns that a record has.

    Raises:
        DataError: it has none of them; `option` would name another one.
    """
    column = next((column for column in columns if find_value(record, column) is not ...), None)
    if column is None:
        raise DataError(
            f"{place} must have the column {' or '.join(columns)}, got {sorted(record)}; name another with {option}"
        )
    return column
