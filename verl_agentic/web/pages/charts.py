"""Charts as inline SVG: lines, dots, bars, and bars of parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 260, 50, 14, 34, 46
_MAX_MARKED, _KEY_HEIGHT = 12, 18
_FILE_STYLE = (
    "text{font:11px sans-serif;fill:#585b63}.grid{stroke:#ddd}@media(prefers-color-scheme:dark){text{fill:#a6a9b3}}"
)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series of points."""

    label: str
    points: Points
    """In a bar chart: middle and height of each bar."""
    colour: str = "var(--series-1)"
    """A CSS colour, or a variable of the page."""
    dashes: str = ""
    """Lengths of dashes and gaps; empty: none."""
    intervals: Sequence[tuple[float, float, float]] = ()
    """`(x, low, high)`; more than 12 are drawn as a band."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a bar."""

    label: str
    """Empty: the piece is blank."""
    amount: float
    colour: str = ""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar made of parts, with a name on its left and a note on its right."""

    label: str
    parts: Sequence[Part]
    note: str = ""


def line_chart(series: Iterable[Series], *, title: str, x: str = "step", y: str = "") -> Markup:
    """Returns a figure of lines; the vertical axis spans 0, 1 and all values. Empty without a point.

    Args:
        series: those without points are left out.
        title: says what the chart shows.
        x: label of the horizontal axis, with its unit.
        y: label of the vertical axis, with its unit.
    """
    lines = [line for line in series if line.points]
    return _write_figure(title, _draw_lines(lines, title=title, x=x, y=y), _write_legend(lines)) if lines else Markup()


def line_file(series: Iterable[Series], *, x: str = "step", y: str = "") -> str:
    """Returns lines as the text of an SVG file, names included; see `line_chart`. Colours must be literal."""
    lines = [line for line in series if line.points]
    if not lines:
        return ""
    names, offset, row = [], 0.0, 0
    for line in lines:
        width = 40 + 6.0 * len(_label_last_point(line))
        if offset and offset + width > _WIDTH:
            offset, row = 0.0, row + 1
        y_of_row = -6 - _KEY_HEIGHT * row
        names.append(
            _make_tag("line", x1=offset, x2=offset + 18, y1=y_of_row - 4, y2=y_of_row - 4, **_get_stroke(line))
        )
        names.append(_write_text(_label_last_point(line), x=offset + 24, y=y_of_row))
        offset += width
    style = _make_tag("style", Markup(_FILE_STYLE))
    above = _KEY_HEIGHT * (row + 1)
    return str(_draw_lines(lines, [style, *names], title="", x=x, y=y, above=above, xmlns="http://www.w3.org/2000/svg"))


def dot_chart(dots: Sequence[tuple[float, float, str]], *, title: str, x: str, y: str) -> Markup:
    """Returns a figure of named dots with one scale for both axes, and a diagonal."""
    if not dots:
        return Markup()
    values = [value for dot in dots for value in dot[:2]]
    low, high = min(0.0, *values), max(1.0, *values)
    axes = _Axes(low, high, low, high)
    same = _make_tag("line", x1=axes.x(low), y1=axes.y(low), x2=axes.x(high), y2=axes.y(high), class_="grid")
    marks = [
        _make_tag("circle", Markup("<title>{}</title>").format(name), cx=axes.x(a), cy=axes.y(b), r=3.5,
                  fill="var(--series-1)", fill_opacity=0.5)
        for a, b, name in dots
    ]  # fmt: skip
    return _write_figure(title, _write_svg([axes.grid(x, y), same, *marks], title=title))


def bar_chart(series: Sequence[Series], *, title: str, x: str, y: str, width: float) -> Markup:
    """Returns a figure of grouped bars. Empty without a bar.

    Args:
        series: their points are the middles and heights of bars.
        title: says what the chart shows.
        x: label of the horizontal axis, with its unit.
        y: label of the vertical axis, with its unit.
        width: of all bars at one place, in units of x.
    """
    middles = [middle for group in series for middle, _ in group.points]
    if not middles:
        return Markup()
    top = max(height for group in series for _, height in group.points) or 1.0
    axes = _Axes(min(middles) - width / 2, max(middles) + width / 2, 0.0, top)
    each = width * 0.9 / len(series)
    bars = []
    for place, group in enumerate(series):
        for middle, height in group.points:
            left_edge = axes.x(middle - width * 0.45 + place * each)
            size = {"width": axes.x(each) - axes.x(0), "height": axes.y(0) - axes.y(height)}
            bars.append(_make_tag("rect", x=left_edge, y=axes.y(height), fill=group.colour, **size))
    return _write_figure(title, _write_svg([axes.grid(x, y), *bars], title=title), _write_legend(series, is_line=False))


def part_bars(bars: Sequence[Bar], *, title: str) -> Markup:
    """Returns a figure of bars on one scale, each made of parts, with names as HTML text. Empty without bars."""
    if not bars:
        return Markup()
    total = max(sum(part.amount for part in bar.parts) for bar in bars) or 1.0
    rows = []
    for bar in bars:
        offset, rects = 0.0, []
        for part in bar.parts:
            size = 100 * part.amount / total
            about = Markup("<title>{}: {}</title>").format(part.label, _format_number(part.amount))
            if part.label:
                rects.append(_make_tag("rect", about, x=offset, y=0, width=size, height=1, fill=part.colour))
            offset += size
        description = ", ".join(
            f"{_format_number(part.amount)} {part.label}" for part in bar.parts if part.amount and part.label
        )
        drawing = _make_tag("svg", Markup().join(rects), class_="part", viewBox="0 0 100 1", preserveAspectRatio="none",
                            role="img", aria_label=f"{bar.label} {description}".strip())  # fmt: skip
        rows.append(Markup("<tr><th>{}</th><td>{}</td><td>{}</td></tr>").format(bar.label, drawing, bar.note))
    parts = {part.label: part.colour for bar in bars for part in bar.parts if part.label}
    keys = [Series(label=label, points=(), colour=colour) for label, colour in parts.items()]
    table = Markup('<table class="parts">{}</table>').format(Markup().join(rows))
    return _write_figure(title, table, _write_legend(keys, is_line=False))


def metric_points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """Returns a metric over `step`; steps without a finite number are left out."""
    values = [(m["step"], m.get(key)) for m in metrics]
    return [(step, float(v)) for step, v in values if isinstance(v, int | float) and math.isfinite(v)]


@dataclass(frozen=True)
class _Axes:
    left: float
    right: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - self.left) / ((self.right - self.left) or 1)

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (self.top - value) / ((self.top - self.bottom) or 1)

    def grid(self, x: str, y: str) -> Markup:
        parts = []
        for value in _choose_ticks(self.bottom, self.top):
            tick_y = self.y(value)
            parts.append(_make_tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=tick_y, y2=tick_y, class_="grid"))
            parts.append(_write_text(_format_number(value), x=_LEFT - 6, y=tick_y + 4, text_anchor="end"))
        for value in _choose_ticks(self.left, self.right):
            parts.append(_write_text(_format_number(value), x=self.x(value), y=_HEIGHT - 28, text_anchor="middle"))
        middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
        parts.append(_write_text(x, x=middle, y=_HEIGHT - 6, text_anchor="middle"))
        return Markup().join([*parts, _write_text(y, x=0, y=13)])


def _draw_lines(
    series: Sequence[Series], extra: Sequence[Markup] = (), *, title: str, x: str, y: str, **attributes: Any
) -> Markup:
    values = [value for line in series for _, value in line.points]
    values += [bound for line in series for _, *bounds in line.intervals for bound in bounds]
    steps = [step for line in series for step, _ in line.points]
    axes = _Axes(min(0.0, *steps), max(*steps, 1.0), min(0.0, *values), max(1.0, *values))
    drawn = [*extra, axes.grid(x, y)]
    for line in series:
        path = " ".join(f"{axes.x(a):.1f},{axes.y(b):.1f}" for a, b in line.points)
        drawn += _draw_intervals(line, axes)
        drawn.append(_make_tag("polyline", points=path, **_get_stroke(line)))
        if len(line.points) <= _MAX_MARKED:
            drawn += [_make_tag("circle", cx=axes.x(a), cy=axes.y(b), r=3, fill=line.colour) for a, b in line.points]
    label = title or f"{', '.join(line.label for line in series)} over {x}"
    return _write_svg(drawn, title=label, **attributes)


def _draw_intervals(series: Series, axes: _Axes) -> list[Markup]:
    """Returns a line for each of few intervals, and a band of many."""
    lows = [(axes.x(x), axes.y(low)) for x, low, _ in series.intervals]
    highs = [(axes.x(x), axes.y(high)) for x, _, high in series.intervals]
    if len(lows) > _MAX_MARKED:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*lows, *reversed(highs)])
        return [_make_tag("polygon", points=corners, fill=series.colour, fill_opacity=0.2, stroke="none")]
    pairs = zip(lows, highs, strict=True)
    return [_make_tag("line", x1=x, x2=x, y1=low, y2=high, **_get_stroke(series)) for (x, low), (_, high) in pairs]


def _get_stroke(series: Series) -> dict[str, Any]:
    dashes = {"stroke_dasharray": series.dashes} if series.dashes else {}
    return {"fill": "none", "stroke": series.colour, "stroke_width": 2, "stroke_linejoin": "round", **dashes}


def _label_last_point(series: Series) -> str:
    return f"{series.label}: {series.points[-1][1]:.2f}"


def _write_legend(series: Sequence[Series], *, is_line: bool = True) -> Markup:
    """Returns the legend as HTML."""
    keys = []
    for entry in series:
        mark = _make_tag("line", x1=0, x2=28, y1=6, y2=6, **_get_stroke(entry)) if is_line else _make_tag(
            "rect", width=28, height=12, fill=entry.colour)  # fmt: skip
        sample = _make_tag("svg", mark, viewBox="0 0 28 12", aria_hidden="true")
        keys.append(Markup("<span>{}{}</span>").format(sample, _label_last_point(entry) if is_line else entry.label))
    return Markup('<div class="keys">{}</div>').format(Markup().join(keys))


def _write_figure(title: str, drawing: Markup, keys: Markup = Markup()) -> Markup:  # noqa: B008
    return Markup("<figure><figcaption>{}{}</figcaption>{}</figure>\n").format(title, keys, drawing)


def _write_svg(parts: Iterable[Markup], *, title: str, above: int = 0, **attributes: Any) -> Markup:
    box = f"0 {-above} {_WIDTH} {_HEIGHT + above}"
    return _make_tag(
        "svg", Markup().join(parts), viewBox=box, role="img", aria_label=title, class_="chart", **attributes
    )


def _write_text(text: str, **attributes: Any) -> Markup:
    return _make_tag("text", escape(text), **attributes)


def _make_tag(name: str, content: Markup = Markup(), /, **attributes: Any) -> Markup:  # noqa: B008
    """Returns an element; underscores in names of attributes become hyphens."""
    pairs = [
        f'{key.rstrip("_").replace("_", "-")}="{escape(f"{value:.1f}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
    ]
    return Markup(f"<{' '.join([name, *pairs])}>{content}</{name}>")


def _choose_ticks(low: float, high: float) -> list[float]:
    """Returns three to six round numbers inside an interval."""
    rough = (high - low) / 4 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [count * step for count in range(first, math.floor(high / step + 1e-9) + 1)]


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
