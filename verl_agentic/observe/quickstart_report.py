"""The report of a quickstart as one HTML page: result, learning curve, changed episodes, all measurements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from verl_agentic.observe.success_over_attempts import proportion_interval
from verl_agentic.web.pages.charts import Series, line_chart, metric_points
from verl_agentic.web.pages.page import Tile, write_page

_SUCCESS, _PAID, _TOKENS = "episode/acc", "critic/score/mean", "episode/model_tokens"
_COST = r"cost/.+/mean"
_NUM_PAIRS = 3
_NUM_TOLD = 2
_SAME = 1e-6


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """The other run of a pair: the control, or the run that the control belongs to."""

    figures: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]


def write_report(
    path: Path,
    *,
    figures: Mapping[str, Any],
    stages: Sequence[str],
    metrics: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    is_control: bool = False,
    other: ComparedRun | None = None,
    viewer: str = "",
    run_dir: str = "RUN_DIR",
) -> None:
    """Writes the page.

    Args:
        path: of the HTML file.
        figures: those of `summary.json`.
        stages: names of the stages that made a model, in order.
        metrics: one mapping per training step, with `step` and verl's metric names.
        before: episodes after the first stage: `outcome`, `stop_reason`, and `segments` with `kind` and `text`.
            `question` is shown above each pair. The success of tasks with equal `labels` is a row of a table.
        after: the same tasks after the last stage, in the same order.
        is_control: rewards were shuffled inside each group.
        other: the other run of the pair; None without one.
        viewer: address of the exported viewer, relative to the page; empty without one.
        run_dir: argument of `verl-agentic view`.
    """
    first, last = stages[0], stages[-1]
    pairs = list(zip(before, after, strict=True))
    better = [pair for pair in pairs if not _is_right(pair[0]) and _is_right(pair[1])]
    worse = sum(_is_right(old) and not _is_right(new) for old, new in pairs)
    write_page(
        path,
        Path(__file__).with_suffix(".html"),
        title="verl_agentic quickstart",
        result=_describe_result(figures, first, last, is_control=is_control),
        picture=line_chart(
            _make_curves(metrics, is_control=is_control, other=other),
            title=_describe_curve(metric_points(metrics, _SUCCESS)),
            x="step of RL",
            y="share of episodes solved",
        )
        + _draw_stages(figures, stages)
        + _draw_costs(metrics),
        stages=stages,
        tiles=_make_tiles(figures, stages, is_control=is_control, other=other),
        figures=figures,
        is_control=is_control,
        has_other=other is not None,
        kinds=_count_kinds(pairs),
        pairs=(better or pairs)[:_NUM_PAIRS],
        count={"tasks": len(pairs), "better": len(better), "worse": worse},
        viewer=viewer,
        run_dir=run_dir,
        is_right=_is_right,
    )


def _describe_result(figures: Mapping[str, Any], first: str, last: str, *, is_control: bool) -> str:
    before, after = (_format_percent(figures[f"success_{name}"]) for name in (first, last))
    if is_control:
        return f"Control: {before} of held-out tasks solved after {first}, {after} after {last} with shuffled rewards"
    return f"From {before} to {after} of held-out tasks solved"


def _count_kinds(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
    """Returns label, number of tasks, and success before and after, of tasks that have a label."""
    by_label: dict[str, list[tuple[bool, bool]]] = {}
    for old, new in pairs:
        for name, value in new.get("labels", {}).items():
            by_label.setdefault(f"{name}: {value}", []).append((_is_right(old), _is_right(new)))
    return [
        (label, len(rights), *(_format_percent(sum(column) / len(rights)) for column in zip(*rights, strict=True)))
        for label, rights in sorted(by_label.items())
    ]


def _draw_stages(figures: Mapping[str, Any], stages: Sequence[str]) -> Markup:
    """Returns the success after each stage; empty for two stages, whose numbers are beside the curve."""
    points = [(number, figures[f"success_{name}"]) for number, name in enumerate(("base", *stages))]
    names = ", ".join(f"{number}: {name}" for number, name in enumerate(("untrained", *stages)))
    series = [Series(label="held-out tasks", points=points)] if len(stages) > _NUM_TOLD else []
    return line_chart(series, title=f"After each stage ({names})", x="stage", y="share of held-out tasks solved")


def _draw_costs(metrics: Sequence[Mapping[str, Any]]) -> Markup:
    """Returns a chart for each cost with a limit, and one of the work of an episode; empty without limits."""
    means = sorted({name for step in metrics for name in step if re.fullmatch(_COST, name)})
    charts = [
        line_chart(
            [
                Series(label="mean of a step", points=metric_points(metrics, name)),
                Series(
                    label="limit",
                    points=metric_points(metrics, f"{name.removesuffix('mean')}limit"),
                    colour="var(--series-2)",
                    dashes="7 4",
                ),
            ],
            title=f"Cost {name.removeprefix('cost/').removesuffix('/mean')} and its limit",
            x="step of RL",
            y="cost of an episode",
        )
        for name in means
    ]
    if charts:
        tokens = [Series(label="real rewards", points=metric_points(metrics, _TOKENS))]
        charts.append(line_chart(tokens, title="Efficiency", x="step of RL", y="sampled tokens of an episode"))
    return Markup("").join(charts)


def _describe_curve(success: Sequence[tuple[float, float]]) -> str:
    """Returns the title of the curve."""
    if not success:
        return "Success in training"
    (first, low), (last, high) = success[0], success[-1]
    before, after = _format_percent(low), _format_percent(high)
    return f"In training, success goes from {before} in step {first:g} to {after} in step {last:g}"


def _make_curves(metrics: Sequence[Mapping[str, Any]], *, is_control: bool, other: ComparedRun | None) -> list[Series]:
    success, paid = metric_points(metrics, _SUCCESS), metric_points(metrics, _PAID)
    theirs = metric_points(other.metrics, _SUCCESS) if other is not None else []
    learning, control = (theirs, success) if is_control else (success, theirs)
    curves = [
        Series(label="real rewards", points=learning, colour="var(--series-1)"),
        Series(label="control: rewards shuffled", points=control, colour="var(--series-2)", dashes="7 4"),
    ]
    is_same = len(paid) == len(success) and all(
        abs(a - b) <= _SAME for (_, a), (_, b) in zip(paid, success, strict=True)
    )
    return (
        curves
        if is_same
        else [*curves, Series(label="reward that trains", points=paid, colour="var(--series-3)", dashes="2 4")]
    )


def _make_tiles(
    figures: Mapping[str, Any], stages: Sequence[str], *, is_control: bool, other: ComparedRun | None
) -> list[Tile]:
    """Returns the most important numbers."""
    count = int(figures["num_eval_tasks"])
    counts = {"base": int(figures.get("num_eval_tasks_base", count))}
    shuffled = ", rewards shuffled" if is_control else ""
    untrained = "untrained" if counts["base"] == count else f"untrained, {counts['base']} tasks"
    titles = {"base": untrained, **{name: f"after {name}" for name in stages}}
    titles[stages[-1]] += shuffled
    tiles = [
        Tile(
            title,
            _format_percent(figures[f"success_{name}"]),
            _format_interval(figures[f"success_{name}"], counts.get(name, count)),
            "main" if name == stages[-1] else "",
        )
        for name, title in titles.items()
    ]
    if other is not None:
        success, of = float(other.figures["success_rl"]), int(other.figures["num_eval_tasks"])
        title = "after RL" if is_control else "control after RL"
        tiles.append(Tile(title, _format_percent(success), _format_interval(success, of)))
    minutes, cpu_minutes = figures["wall_s"] / 60, figures["cpu_s"] / 60
    work = f"{cpu_minutes:.1f} min of CPU time, {figures['steps']} steps of RL"
    tiles.append(Tile("all phases", f"{minutes:.1f} min", work, "cost"))
    return [*tiles, Tile("memory", f"{figures['peak_rss_gb']:.1f} GB", "peak, all processes", "cost")]


def _format_interval(success: float, count: int) -> str:
    low, high = proportion_interval(success * count, count)
    return f"95 %: {100 * low:.0f} to {100 * high:.0f}"


def _format_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _is_right(episode: Mapping[str, Any]) -> bool:
    return episode["outcome"] > 0
