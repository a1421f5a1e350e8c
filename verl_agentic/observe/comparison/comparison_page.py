"""The comparison of runs: one HTML page with a curve for each run and both tables, and plain values for the viewer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_agentic.observe.comparison.compare_runs import RunComparison, compare_runs
from verl_agentic.observe.comparison.comparison_tables import config_lines, figure_lines, format_difference
from verl_agentic.observe.comparison.run_figures import RunFigures
from verl_agentic.web.pages.charts import Series, line_chart
from verl_agentic.web.pages.page import write_page

MAX_TASKS = 100
_NUM_COLOURS = 4
_DASHES = ("", "7 4", "2 4")


def write_comparison(path: Path, comparison: RunComparison) -> None:
    """Writes the page to an HTML file."""
    runs = comparison.runs
    later = zip(runs[1:], comparison.differences, strict=True)
    curves = [
        Series(
            label=run.name,
            points=[(step, mean) for step, mean, _, _ in run.curve],
            intervals=[(step, low, high) for step, _, low, high in run.curve],
            colour=f"var(--series-{number % _NUM_COLOURS + 1})",
            dashes=_DASHES[number // _NUM_COLOURS % len(_DASHES)],
        )
        for number, run in enumerate(runs)
    ]
    write_page(
        path,
        Path(__file__).with_suffix(".html"),
        title="verl_agentic comparison of runs",
        result="; ".join(f"{run.name}: {format_difference(difference)}" for run, difference in later),
        picture=line_chart(curves, title="Mean outcome of training episodes, 95 % interval", y="mean outcome"),
        runs=runs,
        config=config_lines(comparison),
        figures=figure_lines(comparison),
    )


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
