"""Reads rows of other datasets from jsonl, json and parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.swe.exchange.row_formats import task_of_row
from verl_agentic.swe.grading.pytest_ids import foreign_tests, require_pytest
from verl_agentic.swe.grading.repo_task import RepoTask


def import_tasks(path: Path, *, form: str | None = None, pytest_only: bool = False) -> tuple[list[RepoTask], int]:
    """Returns the tasks of a file, and the number of those that are left out.

    Args:
        path: `.jsonl`, `.json` (a list, or an object by instance id) or `.parquet`.
        form: format of the rows; None detects it by the columns.
        pytest_only: leaves out tasks whose tests pytest cannot run, instead of an error.

    Raises:
        ConfigError: `form` is unknown.
        DataError: the file cannot be read, a row fits no format, two rows have one id, or pytest cannot run the tests
            of a task.
    """
    tasks: dict[str, RepoTask] = {}
    for number, row in enumerate(_iter_rows(path), start=1):
        try:
            task = task_of_row(row, form=form)
        except DataError as cause:
            raise DataError(f"{path}, row {number}: {cause}") from cause
        if task.instance_id in tasks:
            raise DataError(f"{path}, row {number}: the id {task.instance_id!r} is there twice; remove one row")
        tasks[task.instance_id] = task
    if not tasks:
        raise DataError(f"the file has no rows, got {path}; check the file")
    chosen = [task for task in tasks.values() if not (pytest_only and foreign_tests(task))]
    require_pytest(chosen)
    return chosen, len(tasks) - len(chosen)


def _iter_rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"no such file, got {path}; download the dataset first")
    if path.suffix in (".jsonl", ".parquet"):
        yield from (row for _, row in numbered_records(path))
    elif path.suffix == ".json":
        yield from _json_rows(path)
    else:
        raise DataError(f"rows are in .jsonl, .json or .parquet files, got {path}; convert the file")


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as cause:
        raise DataError(f"the file is not JSON, got {path}: {cause}; use .jsonl for one object per line") from cause
    rows = list(data.values()) if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"the file must hold a list of rows, or an object of rows by id, got {path}; convert it")
    yield from rows
