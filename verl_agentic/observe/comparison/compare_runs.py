"""Compares runs with the first of them: keys of their configs, and differences in success with their intervals."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.log.run_files import name_runs
from verl_agentic.observe.comparison.run_figures import Z_95, RunFigures, read_figures
from verl_agentic.observe.success_over_attempts import clustered_mean

MIN_PAIRED_TASKS = 10
NOT_SET = "(not set)"
# Keys that say where a run writes and what it is called.
_NAMING_KEYS = ("default_local_dir", "experiment_name", "project_name", "log.dir", "run_id")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference between the success of a run and that of the first one."""

    mean: float
    low: float
    high: float
    """95 % interval."""
    num_tasks: int
    """Tasks that both runs had in their windows, whose outcomes are subtracted pairwise; 0: not paired."""

    @property
    def is_clear(self) -> bool:
        """True if the interval does not contain 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Several runs beside each other."""

    runs: Sequence[RunFigures]
    differences: Sequence[Difference | None]
    """Of each run but the first; None without trajectory logs."""
    config: Mapping[str, Sequence[Any]]
    """Dotted key -> its value in each run; only keys that differ."""

    @property
    def measures(self) -> dict[str, list[float | None]]:
        """Title -> its mean in each run, None where a run lacks it."""
        titles = dict.fromkeys(title for run in self.runs for title in run.measures)
        return {title: [run.measures.get(title) for run in self.runs] for title in titles}

    @property
    def validation(self) -> dict[str, list[float | None]]:
        """Metric of verl's validation -> its last value in each run, None where a run lacks it."""
        names = dict.fromkeys(name for run in self.runs for name in run.validation)
        return {name: [run.validation.get(name) for run in self.runs] for name in names}


def compare_runs(run_dirs: Sequence[Path], *, num_last: int = 10) -> RunComparison:
    """Reads and compares runs.

    Args:
        run_dirs: folders of one run each; the others are compared with the first.
        num_last: number of last steps of each run that are averaged.

    Raises:
        DataError: a folder has no steps, or has several runs.
    """
    names = name_runs(run_dirs)
    runs = [read_figures(path, name=name, num_last=num_last) for path, name in zip(run_dirs, names, strict=True)]
    return RunComparison(
        runs=runs, differences=[_subtract_runs(run, runs[0]) for run in runs[1:]], config=_find_differing_keys(runs)
    )


def _subtract_runs(run: RunFigures, first: RunFigures) -> Difference | None:
    """Returns a difference with its interval: that of the paired mean, or of two proportions.

    The latter is method 10 of Newcombe, Statistics in Medicine 17 (1998), pages 873 to 890.
    """
    if run.success is None or first.success is None or run.interval is None or first.interval is None:
        return None
    tasks = sorted(run.tasks.keys() & first.tasks.keys())
    if len(tasks) >= MIN_PAIRED_TASKS:
        paired = clustered_mean([[run.tasks[task] - first.tasks[task]] for task in tasks])
        half = Z_95 * (paired.stderr or 0.0)
        return Difference(mean=paired.value, low=paired.value - half, high=paired.value + half, num_tasks=len(tasks))
    value, base, mean = run.success.value, first.success.value, run.success.value - first.success.value
    below = math.hypot(value - run.interval[0], first.interval[1] - base)
    above = math.hypot(run.interval[1] - value, base - first.interval[0])
    return Difference(mean=mean, low=mean - below, high=mean + above, num_tasks=0)


def _find_differing_keys(runs: Sequence[RunFigures]) -> dict[str, list[Any]]:
    """Returns keys and their values in each run. Paths that differ by the names of the runs alone are equal."""
    keys = dict.fromkeys(key for run in runs for key in run.config if not key.endswith(_NAMING_KEYS))
    columns = {key: [run.config.get(key, NOT_SET) for run in runs] for key in keys}

    def without_names(values: Sequence[Any]) -> list[str]:
        return [str(value).replace(f"{os.sep}{run.name}", "") for run, value in zip(runs, values, strict=True)]

    return {key: values for key, values in columns.items() if len(set(without_names(values))) > 1}
