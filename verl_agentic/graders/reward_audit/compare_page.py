"""The reward lab as one HTML file that works offline."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

from markupsafe import Markup

from verl_agentic.graders.reward_audit.compare_rubrics import Lab, TrajectoryComparison
from verl_agentic.web.pages.charts import Series, bar_chart, dot_chart
from verl_agentic.web.pages.page import write_page

_OLD, _NEW = "var(--series-4)", "var(--series-1)"
_MOST_CHANGED, _ANSWER_CHARS, _NUM_BINS = 40, 400, 24


def write_lab_page(path: Path, lab: Lab, *, title: str) -> None:
    """Writes the page."""
    changed = sorted(lab.samples, key=lambda sample: -abs(sample.change))[:_MOST_CHANGED]
    summary = lab.summary()
    both = [(s.old, s.new, s.id) for s in lab.samples if s.old is not None and s.new is not None]
    correlation = _format_number(summary["rank_correlation"])
    write_page(
        path,
        Path(__file__).with_suffix(".html"),
        title=title,
        result=f"Mean reward {_format_pair(summary['reward'])}; {summary['changed_sign']} of {len(both)} samples "
        "change the sign of their advantage",
        picture=dot_chart(
            [(old.reward, new.reward, name) for old, new, name in both],
            title=f"Reward of each sample: rank correlation {correlation}",
            x="reward by the old rubric",
            y="reward by the new rubric",
        ),
        summary=summary,
        charts=_draw_charts(lab, summary),
        lines=_list_statistics(summary),
        samples=[_describe_sample(sample) for sample in changed if sample.change],
    )


def _draw_charts(lab: Lab, summary: dict[str, Any]) -> Markup:
    means = [(g.old_mean, g.new_mean, g.name) for g in lab.groups if g.old_mean is not None and g.new_mean is not None]
    higher = sum(new > old for old, new, _ in means)
    olds = [s.old.advantage for s in lab.samples if s.old]
    news = [s.new.advantage for s in lab.samples if s.new]
    values = [*olds, *news] or [0.0]
    size = (max(values) - min(values)) / _NUM_BINS or 1.0
    spread = [Series(label=label, points=_count_in_bins(advantages, min(values), size), colour=colour)
              for label, advantages, colour in (("old", olds, _OLD), ("new", news, _NEW))]  # fmt: skip
    return Markup("{}{}{}").format(
        dot_chart(means, title=f"Mean reward of each group: higher in {higher} of {len(means)}",
                  x="by the old rubric", y="by the new rubric"),
        bar_chart(spread,
                  title=f"Advantages ({lab.estimator}): {_format_range(olds)} before, {_format_range(news)} now",
                  x="advantage", y="samples", width=size),
        bar_chart(_compute_drop_shares(lab),
                  title=f"Groups that dynamic sampling drops: {_format_pair(summary['dropped'])}",
                  x="step", y="share of groups", width=1.0),
    )  # fmt: skip


def _count_in_bins(values: list[float], low: float, size: float) -> list[tuple[float, float]]:
    """Returns middle and count of each bin that is not empty."""
    counts = Counter(min(math.floor((value - low) / size), _NUM_BINS - 1) for value in values)
    return [(low + (place + 0.5) * size, float(count)) for place, count in sorted(counts.items())]


def _compute_drop_shares(lab: Lab) -> list[Series]:
    """Returns the share of groups per step that dynamic sampling drops."""
    steps = sorted({group.step for group in lab.groups})
    of_step = {step: [group for group in lab.groups if group.step == step] for step in steps}
    old = [(float(step), sum(g.is_dropped_old for g in groups) / len(groups)) for step, groups in of_step.items()]
    new = [(float(step), sum(g.is_dropped_new for g in groups) / len(groups)) for step, groups in of_step.items()]
    return [Series(label="old", points=old, colour=_OLD), Series(label="new", points=new, colour=_NEW)]


def _list_statistics(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns name, old and new of the statistics; single values are in the last column."""
    lines = []
    for name, value in summary.items():
        title = name.replace("_", " ")
        if isinstance(value, dict):
            lines.append((title, _format_number(value["old"]), _format_number(value["new"])))
        else:
            lines.append((title, "", _format_number(value)))
    return lines


def _describe_sample(sample: TrajectoryComparison) -> dict[str, str]:
    old, new = sample.old, sample.new
    return {
        "id": sample.id,
        "rewards": _format_pair({"old": old and old.reward, "new": new and new.reward}),
        "advantages": _format_pair({"old": old and old.advantage, "new": new and new.advantage}),
        "answer": sample.answer[:_ANSWER_CHARS],
    }


def _format_pair(values: dict[str, Any]) -> str:
    return f"{_format_number(values['old'])} → {_format_number(values['new'])}"


def _format_range(values: list[float]) -> str:
    return f"{_format_number(min(values))} to {_format_number(max(values))}" if values else "none"


def _format_number(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
