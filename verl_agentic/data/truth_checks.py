"""Checks of the ground truths of a file against the components that will score its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_agentic.data.parquet import ground_truth_of
from verl_agentic.data.record_files import numbered_records
from verl_agentic.rewards.component import ComponentType


def truth_problems(path: Path, components: Sequence[ComponentType]) -> Iterator[str]:
    """Yields a line for each row whose ground truth no answer can meet.

    Rows without a ground truth are left out, because components abstain on them.

    Raises:
        DataError: the file cannot be read.
    """
    checks = [(kind.name, kind.truth_problem) for kind in components if kind.truth_problem is not None]
    for number, record in numbered_records(path) if checks else ():
        truth = ground_truth_of(record.get("reward_model"))
        for name, problem_of in checks if truth is not None else ():
            if problem := problem_of(truth):
                yield f"{path}:{number}: {name}: {problem}"
