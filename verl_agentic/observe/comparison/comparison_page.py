"""The comparison of runs as one HTML page: a curve with a band for each run, and both tables."""

from __future__ import annotations

from pathlib import Path

from verl_agentic.observe.comparison.compare_runs import RunComparison
from verl_agentic.observe.comparison.comparison_tables import config_lines, figure_lines, format_difference
from verl_agentic.web.pages.charts import Series, line_chart
from verl_agentic.web.pages.page import write_page

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
