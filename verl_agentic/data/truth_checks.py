"""Checks of the ground truths of a file against the components that will score its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.log.files.parquet import ground_truth_of
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.rewards.component import ComponentType


def truth_problems(path: Path, components: Sequence[ComponentType]) -> Iterator[str]:
    """Yields a line for each row whose ground truth no answer can meet.

    Rows without a ground truth are left out, because components abstain on them.

    Raises:
        DataError: the file cannot be read.
    """
    if any(kind.truth_problem for kind in components):
        for number, record in numbered_records(path):
            yield from (f"{path}:{number}: {problem}" for problem in unmet_truth(record, components))


def unmet_truth(record: Mapping[str, Any], components: Sequence[ComponentType]) -> Iterator[str]:
    """Yields why no answer to a row can meet its ground truth, for each component that says so."""
    truth = ground_truth_of(record.get("reward_model"))
    for kind in components if truth is not None else ():
        if kind.truth_problem is not None and (problem := kind.truth_problem(truth)):
            yield f"{kind.name}: {problem}"
