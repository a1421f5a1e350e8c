"""Compares files of JSON with what verl's dataset makes of them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError, boundary
from verl_agentic.log.files.plain_values import differences
from verl_agentic.log.files.record_files import PARQUET_REMEDY, numbered_records

_KEPT_TYPES = frozenset({"string", "large_string", "int64", "bool", "null"})
_FIRST_BYTES = 10 << 20
"""`datasets` takes the types of a file of JSON lines from these, and casts the rest to them."""


def load_as_verl(path: Path, folder: Path) -> Any:
    """Returns the `datasets.Dataset` that verl's RLHFDataset loads from a file.

    Args:
        path: `.parquet`, `.json` or `.jsonl`.
        folder: for what `datasets` converts.

    Raises:
        DataError: it cannot be loaded.
    """
    import datasets

    datasets.disable_progress_bars()
    kind = "parquet" if path.suffix == ".parquet" else "json"
    try:
        return datasets.load_dataset(kind, data_files=str(path), cache_dir=str(folder))["train"]
    except Exception as cause:
        error = cause.__cause__ or cause
        raise DataError(
            f"verl's dataset cannot read {path}, got {type(error).__name__}: {error}; {PARQUET_REMEDY}"
        ) from cause


def changed_values(path: Path) -> list[str]:
    """Returns a line for each field of a file whose values verl's dataset reads as others; the first of each.

    A missing key may be None there. Parquet is never changed.

    Raises:
        DataError: the file cannot be read, by verl's dataset or at all.
    """
    if path.suffix not in (".json", ".jsonl"):
        return []
    if next(numbered_records(path), None) is None:
        return []
    changed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="as_verl_") as folder, boundary(DataError, f"reading {path} as verl"):
        dataset = load_as_verl(path, Path(folder))
        is_long = path.stat().st_size > _FIRST_BYTES
        names = [name for name, feature in dataset.features.items() if is_long or not _is_kept(feature)]
        rows = iter(dataset.select_columns(names)) if names else ()
        for (number, record), row in zip(numbered_records(path), rows, strict=False):
            for name in names:
                for field, before, after in differences(name, record.get(name), row[name]):
                    column = re.sub(r"\[\d+\]", "[]", field)
                    if column not in changed and not (before is ... and after is None):
                        excerpt = "nothing" if before is ... else repr(before)[:80]
                        changed[column] = (
                            f"{path}:{number}: {column} is {excerpt}, and verl's dataset reads {str(after)[:80]} "
                            f"({type(after).__name__}); {PARQUET_REMEDY}"
                        )
        del dataset, rows
    return list(changed.values())


def refuse_changed(path: Path) -> None:
    """Raises DataError if verl's dataset reads other values than a file has."""
    if changed := changed_values(path):
        raise DataError("verl's dataset would read other values than these files have:\n" + "\n".join(changed))


def _is_kept(feature: Any) -> bool:
    """Returns whether values of a feature are those of the JSON."""
    if isinstance(feature, Mapping):
        return all(map(_is_kept, feature.values()))
    inner = getattr(feature, "feature", None)
    return _is_kept(inner) if inner is not None else getattr(feature, "dtype", "") in _KEPT_TYPES
