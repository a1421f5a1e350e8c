"""Divides the rows of a file into rows for SFT and rows for RL that share no task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.difficulty import pass_rates_of
from verl_agentic.data.overlap.chunks import chunks_of
from verl_agentic.data.overlap.find_overlaps import find_overlaps
from verl_agentic.data.overlap.summary import Ints
from verl_agentic.log.files.parquet import extra_of
from verl_agentic.sampling.prompts.pass_rates import Floats


def choose_sft(path: Path, *, share: float, rates_N: Floats | None = None, seed: int = 0, jobs: int = 1) -> np.ndarray:
    """Returns which rows are for SFT, [N] of the file's rows; the others are for RL.

    Repeated rows stay together. Of the tasks with a rate, the hardest are for RL; the others are divided at random.

    Args:
        path: JSON lines or parquet.
        share: of the rows that are for SFT.
        rates_N: [N] pass rates; NaN if unknown. None: no rate is known.
        seed: of the random choice.
        jobs: processes.

    Raises:
        ConfigError: not 0 < share < 1.
        DataError: the file cannot be read.
    """
    if not 0 < share < 1:
        raise ConfigError(f"the share of SFT is between 0 and 1, got {share}; for example 0.3")
    overlaps = find_overlaps([path], jobs=jobs)
    _, groups, sizes = np.unique(
        _connect_rows(overlaps.starts[-1], overlaps.pairs), return_inverse=True, return_counts=True
    )
    rates = np.full(len(groups), np.nan) if rates_N is None else rates_N
    num_known = np.bincount(groups, weights=~np.isnan(rates))
    with np.errstate(invalid="ignore"):
        rate_of_group = np.bincount(groups, weights=np.nan_to_num(rates)) / num_known
    order = np.random.default_rng(seed).permutation(len(sizes))
    is_sft = np.zeros(len(sizes), dtype=bool)
    for part in (order[np.isnan(rate_of_group[order])], order[~np.isnan(rate_of_group[order])]):
        easiest = part[np.argsort(-np.nan_to_num(rate_of_group[part]), kind="stable")]
        remaining = share * sizes[easiest].sum() + 0.5
        for group in easiest:  # a group that is too large is for RL, and a smaller one takes its place
            if sizes[group] <= remaining:
                is_sft[group] = True
                remaining -= sizes[group]
    return is_sft[groups]


def _connect_rows(num_rows: int, pairs: Ints) -> Ints:
    """Returns the first row that each row is connected with, [N]; a row that nearly equals two others connects them."""
    first, rows = np.arange(num_rows), pairs.T
    while (first[rows[0]] != first[rows[1]]).any():
        minimum = np.minimum(first[rows[0]], first[rows[1]])
        np.minimum.at(first, first[rows[0]], minimum)
        np.minimum.at(first, first[rows[1]], minimum)
        first = first[first]
    return first


def rates_of_rows(path: Path, records: Sequence[Mapping[str, Any]]) -> Floats:
    """Returns the pass rate of each row of a file by its `task_id`, [N]; NaN if it has too few attempts.

    Args:
        path: of the rows.
        records: last rows of the log of an evaluation.

    Raises:
        ConfigError: no row has a rate.
    """
    rows = [record for chunk in chunks_of(path) for _, record in chunk.records()]
    tasks = [extra_of(row.get("extra_info")).get("task_id") for row in rows]
    return pass_rates_of(records, ["" if task is None else str(task) for task in tasks])
