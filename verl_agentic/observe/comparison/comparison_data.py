"""A comparison as plain JSON values, for the page of the viewer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_agentic.observe.comparison.compare_runs import compare_runs
from verl_agentic.observe.comparison.comparison_tables import config_lines, figure_lines
from verl_agentic.observe.comparison.run_figures import RunFigures

MAX_TASKS = 100


def describe_comparison(run_dirs: Sequence[Path]) -> dict[str, Any]:
    """Returns names, curves, tables, and the tasks of all runs with their mean outcomes, largest differences first.

    Raises:
        DataError: a folder has no steps, or has several runs.
    """
    comparison = compare_runs(run_dirs)
    runs = comparison.runs
    common = set.intersection(*({*run.tasks} for run in runs))
    outcomes = [(task, [run.tasks[task] for run in runs]) for task in sorted(common)]
    outcomes.sort(key=lambda item: min(item[1]) - max(item[1]))
    return {
        "curves": [_describe_curve(run) for run in runs],
        "config": config_lines(comparison),
        "figures": figure_lines(comparison),
        "num_tasks": len(outcomes),
        "tasks": outcomes[:MAX_TASKS],
    }


def _describe_curve(run: RunFigures) -> dict[str, Any]:
    columns = zip(*run.curve, strict=True) if run.curve else ((), (), (), ())
    finite_columns = [[value if math.isfinite(value) else None for value in column] for column in columns]
    return {"label": run.name, **dict(zip(("steps", "values", "lows", "highs"), finite_columns, strict=True))}
