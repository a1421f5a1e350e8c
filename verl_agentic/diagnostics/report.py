"""A run as one self-contained HTML page: learning curve, reward parts, episodes before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment

_WIDTH, _HEIGHT, _PAD = 640, 220, 36
_CURVES = {
    "success": ("episode/acc", "#0b6e4f"),
    "tool used": ("episode/used_tool", "#1f5fbf"),
    "tool errors": ("episode/tool_errors", "#b3541e"),
}
_PARTS = {
    "outcome": ("episode/acc", "#0b6e4f"),
    "reward that trains": ("critic/score/mean", "#7a3e9d"),
}
_NUM_EPISODES = 3


def write_report(
    path: Path,
    *,
    figures: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
) -> None:
    """Writes the page.

    Args:
        path: of the HTML file.
        figures: name -> number, shown as a table.
        metrics: one mapping per training step, with `step` and verl's metric names.
        before: episodes as `data.evaluate.describe` gives them, before training.
        after: the same tasks after training.
    """
    page = _PAGE.render(
        figures=figures,
        charts=[("Learning curve", chart(metrics, _CURVES)), ("Reward parts", chart(metrics, _PARTS))],
        groups=[("Before RL", before[:_NUM_EPISODES]), ("After RL", after[:_NUM_EPISODES])],
    )
    path.write_text(page, encoding="utf-8")


def chart(metrics: Sequence[Mapping[str, Any]], curves: Mapping[str, tuple[str, str]]) -> str:
    """Returns an SVG of metrics over steps; the vertical axis spans 0, 1 and all values.

    Args:
        metrics: one mapping per step; values that are no finite numbers are left out.
        curves: label -> (metric, colour); a metric that no step has is left out.
    """
    series = {label: (_points(metrics, key), colour) for label, (key, colour) in curves.items()}
    series = {label: (points, colour) for label, (points, colour) in series.items() if points}
    if not series:
        return ""
    values = [value for points, _ in series.values() for _, value in points]
    axes = _Axes(
        last=max(step for points, _ in series.values() for step, _ in points),
        bottom=min(0.0, *values),
        top=max(1.0, *values),
    )
    parts = [axes.grid()]
    for index, (label, (points, colour)) in enumerate(series.items()):
        line = " ".join(f"{axes.x(step):.1f},{axes.y(value):.1f}" for step, value in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{_PAD + 8 + 150 * index}" y="14" fill="{colour}">&#9644; {label} ({points[-1][1]:.2f})</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    # verl's log writes a value that is not finite as null.
    values = [(m["step"], m.get(key)) for m in metrics]
    return [(step, float(v)) for step, v in values if isinstance(v, int | float) and math.isfinite(v)]


@dataclass(frozen=True, kw_only=True)
class _Axes:
    last: int
    bottom: float
    top: float

    def x(self, step: float) -> float:
        return _PAD + (_WIDTH - _PAD - 8) * step / max(self.last, 1)

    def y(self, value: float) -> float:
        return 24 + (_HEIGHT - 48) * (self.top - value) / (self.top - self.bottom)

    def grid(self) -> str:
        lines = []
        for share in (0.0, 0.5, 1.0):
            value = self.bottom + share * (self.top - self.bottom)
            y = self.y(value)
            lines.append(f'<line x1="{_PAD}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            lines.append(f'<text x="4" y="{y + 4:.1f}" class="tick">{value:.2g}</text>')
        lines.append(f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 4}" text-anchor="end" class="tick">step {self.last}</text>')
        return "".join(lines)


_PAGE = Environment(autoescape=True).from_string("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>verl_agentic quickstart</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; max-width: 44rem; font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } .tick { fill: currentColor; opacity: .7; }
table { border-collapse: collapse; } td { padding: .1rem 1rem .1rem 0; border-bottom: 1px solid var(--line); }
td:last-child { text-align: right; font-variant-numeric: tabular-nums; }
.episode { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .9rem; margin: .6rem 0; }
.episode pre { white-space: pre-wrap; margin: .4rem 0 0; font: 13px/1.5 ui-monospace, monospace; }
.model { background: #2f9e6e33; border-radius: 3px; }
.prompt, .tool, .user, .framework { opacity: .55; background: var(--soft); }
.good { color: #0b8a5a; } .bad { color: #c2452d; }
</style>
</head>
<body>
<h1>Quickstart</h1>
<table>{% for name, value in figures.items() %}
<tr><td>{{ name }}</td><td>{{ '%.3f' % value if value is float else value }}</td></tr>{% endfor %}
</table>
{% for title, svg in charts %}<h2>{{ title }}</h2>{{ svg | safe }}
{% endfor %}
<h2>Episodes</h2>
<p>The same held-out tasks before and after. Green is what the policy wrote and is trained on; greyed out is what it
only read.</p>
{% for title, episodes in groups %}<h3>{{ title }}</h3>
{% for episode in episodes %}<div class="episode">
<b class="{{ 'good' if episode.outcome > 0 else 'bad' }}">{{ 'right' if episode.outcome > 0 else 'wrong' }}</b>
&middot; {{ episode.stop_reason }}
<pre>{% for segment in episode.segments %}<span class="{{ segment.kind }}">{{ segment.text }}</span>{% endfor %}</pre>
</div>
{% endfor %}{% endfor %}
</body>
</html>
""")
