"""The lines of a comparison's tables, as text, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl_agentic.observe.comparison.compare_runs import Difference, RunComparison
from verl_agentic.observe.comparison.run_figures import RunFigures

Line = tuple[str, Sequence[str]]
"""Label, and a cell for each run."""
_MAX_CHARS = 60


def config_lines(comparison: RunComparison) -> list[Line]:
    """Returns the keys that differ, with their values."""
    return [(key, [_shorten_value(value) for value in values]) for key, values in comparison.config.items()]


def figure_lines(comparison: RunComparison) -> list[Line]:
    """Returns all figures: success first, cost last."""
    runs = comparison.runs
    averages = {**comparison.validation, **comparison.measures}
    return [
        ("steps", [f"{run.num_steps}" for run in runs]),
        ("averaged steps", [f"{run.window[0]} to {run.window[1]}" for run in runs]),
        ("success", [format_success(run) for run in runs]),
        ("difference to the first", ["", *map(format_difference, comparison.differences)]),
        *((title, [_format_number(value) for value in values]) for title, values in averages.items()),
        ("minutes", [_format_number(run.wall_s and run.wall_s / 60) for run in runs]),
        ("million tokens", [_format_number(run.num_tokens / 1e6) for run in runs]),
    ]


def format_success(run: RunFigures) -> str:
    """Returns the mean outcome of a run with its 95 % interval."""
    if run.success is None or run.interval is None:
        return "no trajectory log"
    low, high = run.interval
    return f"{run.success.value:.3f} ({low:.3f} to {high:.3f}), {run.success.count} episodes"


def format_difference(difference: Difference | None) -> str:
    """Returns a difference with its interval, and whether it is clear."""
    if difference is None:
        return "no trajectory log"
    how = f"paired over {difference.num_tasks} tasks" if difference.num_tasks else "different tasks"
    verdict = "clear" if difference.is_clear else "not clear"
    return f"{difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f}), {verdict}, {how}"


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _shorten_value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "..."
