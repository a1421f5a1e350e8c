"""The report of an evaluation as one HTML page: pass@1, curve, and tasks with links to their episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from verl_agentic.evaluate.evaluation_run import is_success
from verl_agentic.web.pages.charts import Bar, Part, Series, line_chart, part_bars
from verl_agentic.web.pages.page import Tile, write_page

_Row = Mapping[str, Any]
_MAX_EPISODES, _MAX_TASKS = 200, 100
_STYLES = {True: "good", False: "bad", None: "odd"}
_LABELS = {True: "right", False: "wrong", None: "void"}


def shown_tasks(rows: Sequence[_Row]) -> dict[str, list[_Row]]:
    """Returns about 200 tasks that the page lists with their episodes, those with the most failures first."""
    tasks: dict[str, list[_Row]] = {}
    for row in rows:
        tasks.setdefault(row["uid"], []).append(row)
    max_attempts = max(map(len, tasks.values()), default=1)
    order = sorted(tasks, key=lambda task: sum(_is_right(row) is True for row in tasks[task]) / len(tasks[task]))
    return {task: tasks[task] for task in order[: min(_MAX_TASKS, max(1, _MAX_EPISODES // max_attempts))]}


def write_evaluation_page(path: Path, *, summary: Mapping[str, Any], rows: Sequence[_Row], viewer: str = "") -> None:
    """Writes the page.

    Args:
        path: of the HTML file.
        summary: as in `summary.json`.
        rows: the last row of each episode.
        viewer: address of a viewer with the episodes of `shown_tasks`, relative to the page; empty without one.
    """
    tasks, ends = shown_tasks(rows), _draw_stop_reasons(rows)
    curve = _draw_curve(summary)
    write_page(
        path,
        Path(__file__).with_suffix(".html"),
        title=f"{summary['env']} with {summary['model']}",
        result=_describe_result(summary),
        picture=curve or ends,
        tiles=_make_tiles(summary),
        summary=summary,
        ends=ends if curve else Markup(),
        tasks=[_describe_task(attempts, viewer) for attempts in tasks.values()],
        num_tasks=len({row["uid"] for row in rows}),
        figures=figure_rows(summary),
        viewer=viewer,
    )


def write_turns_page(path: Path, points: Sequence[Mapping[str, Any]], *, title: str) -> None:
    """Writes the page of success over the number of turns.

    Args:
        path: of the HTML file; each point's own page is in `turns-N/report.html` beside it.
        points: as in `turns.json`.
        title: environment and model.
    """
    counted_points = [point for point in points if point["mean"] is not None]
    best = max(counted_points, key=lambda point: point["mean"], default=None)
    result = "0 episodes count: all are void"
    if best is not None:
        result = f"Success is highest with max_turns={best['max_turns']}: {best['mean']:.2f}{_format_brackets(best)}"
    success = Series(
        label="success",
        points=[(point["max_turns"], point["mean"]) for point in counted_points],
        intervals=[(point["max_turns"], *point["ci95"]) for point in counted_points],
    )
    picture = line_chart([success], title="Success over max_turns, with 95 % intervals", x="max_turns",
                         y="share of episodes solved")  # fmt: skip
    write_page(path, Path(__file__).with_name("turns_page.html"), title=title, result=result, picture=picture,
               points=[{**point, "interval": _format_brackets(point)} for point in points])  # fmt: skip


def figure_rows(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns name, value and uncertainty of every number of a summary."""
    rows = []
    if "tasks" in summary:
        rows.append(("tasks", str(summary["tasks"]), f"{summary['episodes'] - summary['void']} episodes"))
    for name in ("success", "selected", "outcome", "num_turns", "model_tokens", "tool_calls", "tool_errors"):
        figure = summary.get(name)
        if figure is not None:
            rows.append((name.replace("_", " "), f"{figure['mean']:.4g}", _format_uncertainty(figure)))
    for name, title in (("pass_at_k", "pass@"), ("pass_hat_k", "pass^")):
        for k, value in summary.get(name, {}).items():
            interval = _format_uncertainty({"ci95": summary[f"{name}_ci95"][k]})
            rows.append((f"{title}{k}", f"{value:.4g}", f"{interval}, {summary['tasks_at_k'][k]} tasks"))
    for name, value in summary.get("cost", {}).items():
        if value is not None:
            rows.append((f"cost {name.replace('_', ' ')}", f"{value:.4g}", ""))
    rows += [(f"stopped: {reason}", str(count), "") for reason, count in summary["stop_reasons"].items()]
    return [*rows, ("void", str(summary["void"]), f"of {summary['episodes']}")]


def _format_uncertainty(figure: Mapping[str, Any]) -> str:
    """Returns the 95 % interval of a proportion, and the standard error if it is known; "" without either.

    At 0 and 1 the standard error is 0 and says nothing, so it is left out.
    """
    stderr = figure.get("stderr")
    if "ci95" in figure:
        low, high = figure["ci95"]
        return f"95 %: {low:.3f} to {high:.3f}" + (f", s.e. {stderr:.4f}" if stderr else "")
    return "" if stderr is None else f"s.e. {stderr:.4g}"


def _format_brackets(figure: Mapping[str, Any]) -> str:
    return " [{:.2f}, {:.2f}]".format(*figure["ci95"]) if "ci95" in figure else ""


def _describe_result(summary: Mapping[str, Any]) -> str:
    if "success" not in summary:
        return f"0 of {summary['episodes']} episodes count: all are void"
    success = summary["success"]
    return f"pass@1 {success['mean']:.2f}{_format_brackets(success)} on {summary['tasks']} tasks"


def _make_tiles(summary: Mapping[str, Any]) -> list[Tile]:
    if "success" not in summary:
        return []
    tiles = [Tile("pass@1", f"{summary['success']['mean']:.2f}", _format_uncertainty(summary["success"]), "main")]
    k = list(summary["pass_at_k"])[-1]
    if k != "1":
        if "selected" in summary:
            tiles.append(
                Tile("selected", f"{summary['selected']['mean']:.2f}", _format_uncertainty(summary["selected"]))
            )
        for name, title, description in (("pass_at_k", "pass@", "at least one attempt solves the task"),
                                  ("pass_hat_k", "pass^", "all attempts solve the task")):  # fmt: skip
            interval = _format_uncertainty({"ci95": summary[f"{name}_ci95"][k]})
            tiles.append(Tile(f"{title}{k}", f"{summary[name][k]:.2f}", f"{description}; {interval}"))
    for name, title in (("num_turns", "turns"), ("model_tokens", "tokens written"), ("tool_calls", "tool calls")):
        tiles.append(Tile(title, f"{summary[name]['mean']:.4g}", "mean of an episode"))
    return [*tiles, Tile("void", str(summary["void"]), f"of {summary['episodes']} episodes", "cost")]


def _draw_curve(summary: Mapping[str, Any]) -> Markup:
    """Returns the chart of pass@k and pass^k over k; empty if no task has two attempts."""
    ks = list(summary.get("pass_at_k", ()))
    if len(ks) < 2:
        return Markup()
    series = [
        Series(label=label, points=[(float(k), summary[name][k]) for k in ks], colour=f"var(--{colour})",
               intervals=[(float(k), *summary[f"{name}_ci95"][k]) for k in ks])
        for name, label, colour in (("pass_at_k", "pass@k", "series-1"), ("pass_hat_k", "pass^k", "series-2"))
    ]  # fmt: skip
    first, last = (100 * series[0].points[place][1] for place in (0, -1))
    title = f"Of {summary['tasks']} tasks, {first:.0f} % are solved in one attempt, {last:.0f} % within {ks[-1]}"
    return line_chart(series, title=title, x="attempts at each task, k", y="share of tasks, with 95 % interval")


def _draw_stop_reasons(rows: Sequence[_Row]) -> Markup:
    """Returns the chart of stop reasons, with solved episodes."""
    counts = Counter((row["stop_reason"], _is_right(row)) for row in rows)
    reasons = Counter(row["stop_reason"] for row in rows)
    bars = [
        Bar(
            label=reason,
            parts=[Part(label=label, amount=counts[reason, key], colour=f"var(--{_STYLES[key]})")
                   for key, label in _LABELS.items()],
            note=f"{counts[reason, True]} right of {total}",
        )
        for reason, total in reasons.most_common()
    ]  # fmt: skip
    first = reasons.most_common(1)
    title = f"{first[0][1]} of {len(rows)} episodes end with {first[0][0]}" if first else ""
    return part_bars(bars, title=title)


def _describe_task(attempts: Sequence[_Row], viewer: str) -> dict[str, Any]:
    results = [_is_right(row) for row in attempts]
    return {
        "name": attempts[0]["task_id"],
        "solved": sum(result is True for result in results),
        "counted": sum(result is not None for result in results),
        "attempts": [
            {
                "label": f"{row['session'] + 1} {_LABELS[result]}",
                "style": _STYLES[result],
                "link": _make_link(row, viewer),
            }
            for row, result in zip(attempts, results, strict=True)
        ],
    }


def _make_link(row: _Row, viewer: str) -> str:
    place = {"split": "val", "step": 0, "uid": row["uid"], "session": row["session"], "index": row["index"]}
    return f"{viewer}#{urlencode(place)}" if viewer else ""


def _is_right(row: _Row) -> bool | None:
    """Returns whether an episode solved its task; None for a void one."""
    return None if row["is_void"] else is_success(row)
