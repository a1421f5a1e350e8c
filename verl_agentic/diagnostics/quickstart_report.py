"""A quickstart as one HTML page: the result first, then its curve, episodes that changed, and all figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment

from verl_agentic.algorithms.batch_metrics.success_over_attempts import proportion_interval

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 260, 40, 12, 28, 24
_SUCCESS, _PAID = "episode/acc", "critic/score/mean"
_NUM_PAIRS = 3
_SAME = 1e-6


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of a chart."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: str
    """As CSS has it; a page may give one of its variables."""
    dashes: str = ""
    """Lengths of dashes and gaps; empty: none."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The other run of a pair: the control of a run that learns, or the run that learns of a control."""

    figures: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]


def write_report(
    path: Path,
    *,
    figures: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    is_control: bool = False,
    other: Comparison | None = None,
    viewer: str = "",
    run_dir: str = "RUN_DIR",
) -> None:
    """Writes the page.

    Args:
        path: of the HTML file.
        figures: those of `summary.json`.
        metrics: one mapping per training step, with `step` and verl's metric names.
        before: episodes before RL, as `data.evaluation.local_model.describe` gives them; `question` is shown above each
            pair.
        after: the same tasks after RL, in the same order.
        is_control: rewards were shuffled inside each group.
        other: the control, or of a control the run that learns; None where there is none.
        viewer: address of the exported viewer, relative to the page; empty where there is none.
        run_dir: what to give `verl-agentic view`.
    """
    pairs = list(zip(before, after, strict=True))
    better = [pair for pair in pairs if not _is_right(pair[0]) and _is_right(pair[1])]
    worse = sum(_is_right(old) and not _is_right(new) for old, new in pairs)
    page = _PAGE.render(
        figures=figures,
        is_control=is_control,
        tiles=_tiles(figures, is_control=is_control, other=other),
        chart=draw(_curves(metrics, is_control=is_control, other=other)),
        has_other=other is not None,
        pairs=(better or pairs)[:_NUM_PAIRS],
        count={"tasks": len(pairs), "better": len(better), "worse": worse},
        viewer=viewer,
        run_dir=run_dir,
        is_right=_is_right,
    )
    path.write_text(page, encoding="utf-8")


def chart(metrics: Sequence[Mapping[str, Any]], curves: Mapping[str, tuple[str, str]]) -> str:
    """Returns an SVG of metrics over steps; see `draw`.

    Args:
        metrics: one mapping per step; values that are no finite numbers are left out.
        curves: label -> (metric, colour); a metric that no step has is left out.
    """
    return draw(
        Curve(label=label, points=_points(metrics, key), colour=colour) for label, (key, colour) in curves.items()
    )


def draw(curves: Iterable[Curve]) -> str:
    """Returns an SVG of curves over steps; the vertical axis spans 0, 1 and all values. Empty without a point."""
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    values = [value for curve in curves for _, value in curve.points]
    last = max(step for curve in curves for step, _ in curve.points)
    axes = _Axes(last=last, bottom=min(0.0, *values), top=max(1.0, *values))
    parts = [axes.grid()]
    at = float(_LEFT)
    for curve in curves:
        line = " ".join(f"{axes.x(step):.1f},{axes.y(value):.1f}" for step, value in curve.points)
        legend = f"{curve.label}: {curve.points[-1][1]:.2f}"
        look = f'fill="none" stroke="{curve.colour}" stroke-width="2" stroke-linejoin="round"'
        look += f' stroke-dasharray="{curve.dashes}"' if curve.dashes else ""
        parts.append(f'<polyline points="{line}" {look}/>')
        parts.append(f'<line x1="{at:.0f}" x2="{at + 18:.0f}" y1="10" y2="10" {look}/>')
        parts.append(f'<text x="{at + 24:.0f}" y="14">{legend}</text>')
        at += 50 + 6.8 * len(legend)
    names = ", ".join(curve.label for curve in curves)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{names} over steps">{"".join(parts)}</svg>'


def _curves(metrics: Sequence[Mapping[str, Any]], *, is_control: bool, other: Comparison | None) -> list[Curve]:
    success, paid = _points(metrics, _SUCCESS), _points(metrics, _PAID)
    theirs = _points(other.metrics, _SUCCESS) if other is not None else []
    learning, control = (theirs, success) if is_control else (success, theirs)
    curves = [
        Curve(label="rewards as earned", points=learning, colour="var(--learning)"),
        Curve(label="control: rewards shuffled", points=control, colour="var(--control)", dashes="7 4"),
    ]
    is_same = len(paid) == len(success) and all(
        abs(a - b) <= _SAME for (_, a), (_, b) in zip(paid, success, strict=True)
    )
    return (
        curves
        if is_same
        else [*curves, Curve(label="reward that trains", points=paid, colour="var(--paid)", dashes="2 4")]
    )


def _tiles(
    figures: Mapping[str, Any], *, is_control: bool, other: Comparison | None
) -> list[tuple[str, str, str, str]]:
    """Returns name, value, what stands below it, and style of the numbers that matter."""
    count = int(figures["num_eval_tasks"])
    tiles = [
        (title, _percent(figures[key]), _interval(figures[key], count), style)
        for title, key, style in (
            ("before SFT", "success_base", ""),
            ("after SFT", "success_sft", ""),
            ("after RL, rewards shuffled" if is_control else "after RL", "success_rl", "main"),
        )
    ]
    if other is not None:
        success, of = float(other.figures["success_rl"]), int(other.figures["num_eval_tasks"])
        title = "after RL, rewards as earned" if is_control else "control after RL"
        tiles.append((title, _percent(success), _interval(success, of), ""))
    minutes = figures["wall_s"] / 60
    tiles.append(("all phases", f"{minutes:.1f} min", f"{figures['steps']} steps of RL", "cost"))
    return [*tiles, ("memory", f"{figures['peak_rss_gb']:.1f} GB", "at most, all processes", "cost")]


def _interval(success: float, count: int) -> str:
    low, high = proportion_interval(success * count, count)
    return f"95 %: {100 * low:.0f} to {100 * high:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _is_right(episode: Mapping[str, Any]) -> bool:
    return episode["outcome"] > 0


def _points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    # verl's log writes a value that is not finite as null.
    values = [(m["step"], m.get(key)) for m in metrics]
    return [(step, float(v)) for step, v in values if isinstance(v, int | float) and math.isfinite(v)]


@dataclass(frozen=True, kw_only=True)
class _Axes:
    last: float
    bottom: float
    top: float

    def x(self, step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / max(self.last, 1)

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (self.top - value) / (self.top - self.bottom)

    def grid(self) -> str:
        lines = []
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            value = self.bottom + share * (self.top - self.bottom)
            y = self.y(value)
            lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="tick">{value:.2g}</text>')
        end, foot = f"step {self.last:g}", _HEIGHT - 6
        lines.append(f'<text x="{_LEFT}" y="{foot}" class="tick">step 0</text>')
        lines.append(f'<text x="{_WIDTH - _RIGHT}" y="{foot}" text-anchor="end" class="tick">{end}</text>')
        return "".join(lines)


_PAGE = Environment(autoescape=True).from_string((Path(__file__).parent / "report_page.html").read_text("utf-8"))
