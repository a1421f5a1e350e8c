"""The reward lab as one HTML file that works offline; whatever a model wrote in it is text, never markup."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from verl_agentic.data.reward_audit.compare_rubrics import Comparison, Lab
from verl_agentic.errors import MissingDependencyError

_OLD, _NEW = "#8a8f98", "#0b6e4f"
_MOST_CHANGED, _ANSWER_CHARS, _HEIGHT = 40, 400, 420


def write_lab_page(path: Path, lab: Lab, *, title: str) -> None:
    """Writes the page, plotly.js (some MB) included.

    Raises:
        MissingDependencyError: plotly is not installed.
    """
    plots = _figures(lab)
    parts = [
        (name, figure.to_html(full_html=False, include_plotlyjs=index == 0, config={"displaylogo": False}))
        for index, (name, figure) in enumerate(plots)
    ]
    changed = sorted(lab.samples, key=lambda sample: -abs(sample.change))[:_MOST_CHANGED]
    page = _PAGE.render(
        title=title,
        summary=_lines(lab.summary()),
        plots=parts,
        samples=[_shown(sample) for sample in changed if sample.change],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _figures(lab: Lab) -> list[tuple[str, Any]]:
    """Returns title and plot."""
    try:
        from plotly import graph_objects as go
    except ImportError as cause:
        raise MissingDependencyError(
            "the page of the reward lab needs plotly, which is not installed; pip install 'verl-agentic[viewer]'"
        ) from cause
    both = [s for s in lab.samples if s.old is not None and s.new is not None]
    means = [g for g in lab.groups if g.old_mean is not None and g.new_mean is not None]
    rewards = go.Figure(_dots(go, [(s.old.reward, s.new.reward, s.id) for s in both if s.old and s.new]))
    groups = go.Figure(_dots(go, [(g.old_mean, g.new_mean, g.name) for g in means]))
    advantages = go.Figure(
        [
            go.Histogram(x=[s.old.advantage for s in both if s.old], name="old", marker_color=_OLD, opacity=0.6),
            go.Histogram(x=[s.new.advantage for s in both if s.new], name="new", marker_color=_NEW, opacity=0.6),
        ]
    ).update_layout(barmode="overlay", xaxis_title="advantage", yaxis_title="samples")
    titles = ("Reward of each sample", "Mean reward of each group", f"Advantages ({lab.estimator})", "Dropped groups")
    for figure in (rewards, groups):
        figure.update_layout(xaxis_title="old", yaxis_title="new")
    figures = (rewards, groups, advantages, _drops(go, lab))
    for figure in figures:
        figure.update_layout(template="plotly_white", height=_HEIGHT, margin={"t": 20})
    return list(zip(titles, figures, strict=True))


def _dots(go: Any, points: Sequence[tuple[Any, Any, str]]) -> Any:
    """Returns old over new; names are escaped, because plotly reads some tags in what it shows."""
    x, y, names = ([point[i] for point in points] for i in range(3))
    text = [html.escape(name) for name in names]
    return go.Scatter(x=x, y=y, text=text, mode="markers", marker={"color": _NEW, "opacity": 0.5, "size": 7})


def _drops(go: Any, lab: Lab) -> Any:
    """Returns the share of groups per step that dynamic sampling drops."""
    steps = sorted({group.step for group in lab.groups})
    of_step = [[group for group in lab.groups if group.step == step] for step in steps]
    old = [sum(g.is_dropped_old for g in groups) / len(groups) for groups in of_step]
    new = [sum(g.is_dropped_new for g in groups) / len(groups) for groups in of_step]
    bars = [
        go.Bar(x=steps, y=old, name="old", marker_color=_OLD),
        go.Bar(x=steps, y=new, name="new", marker_color=_NEW),
    ]
    return go.Figure(bars).update_layout(xaxis_title="step", yaxis_title="share of groups", yaxis_range=[0, 1])


def _lines(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns name, old and new of the figures; those that have no such pair stand in the last column."""
    lines = []
    for name, value in summary.items():
        title = name.replace("_", " ")
        if isinstance(value, dict):
            lines.append((title, _number(value["old"]), _number(value["new"])))
        else:
            lines.append((title, "", _number(value)))
    return lines


def _shown(sample: Comparison) -> dict[str, str]:
    old, new = sample.old, sample.new
    return {
        "id": sample.id,
        "rewards": f"{_number(old and old.reward)} → {_number(new and new.reward)}",
        "advantages": f"{_number(old and old.advantage)} → {_number(new and new.advantage)}",
        "answer": sample.answer[:_ANSWER_CHARS],
    }


def _number(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_PAGE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: #1c1e21 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 } td, th { padding: .25rem .75rem; text-align: left;
border-bottom: 1px solid #e3e5e8; vertical-align: top } pre { white-space: pre-wrap; margin: 0; max-width: 30rem;
overflow-wrap: anywhere }
</style></head><body>
<h1>{{ title }}</h1>
<table><tr><th></th><th>old</th><th>new</th></tr>
{% for name, old, new in summary %}<tr><td>{{ name }}</td><td>{{ old }}</td><td>{{ new }}</td></tr>
{% endfor %}</table>
{% for name, plot in plots %}<h2>{{ name }}</h2>{{ plot|safe }}
{% endfor %}
<h2>Samples whose advantage changed most</h2>
<table><tr><th>sample</th><th>reward</th><th>advantage</th><th>answer</th></tr>
{% for s in samples %}<tr><td>{{ s.id }}</td><td>{{ s.rewards }}</td><td>{{ s.advantages }}</td>
<td><pre>{{ s.answer }}</pre></td></tr>
{% endfor %}</table>
</body></html>
""")
