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
    shown = [one for one in series if one.points]
    return _figure(title, _lines(shown, title=title, x=x, y=y), _keys(shown)) if shown else Markup()


def line_file(series: Iterable[Series], *, x: str = "step", y: str = "") -> str:
    """Returns lines as the text of an SVG file, names included; see `line_chart`. Colours must be literal."""
    shown = [one for one in series if one.points]
    if not shown:
        return ""
    names, at, row = [], 0.0, 0
    for one in shown:
        width = 40 + 6.0 * len(_last(one))
        if at and at + width > _WIDTH:
            at, row = 0.0, row + 1
        y_of_row = -6 - _KEY_HEIGHT * row
        names.append(_tag("line", x1=at, x2=at + 18, y1=y_of_row - 4, y2=y_of_row - 4, **_stroke(one)))
        names.append(_text(_last(one), x=at + 24, y=y_of_row))
        at += width
    style = _tag("style", Markup(_FILE_STYLE))
    above = _KEY_HEIGHT * (row + 1)
    return str(_lines(shown, [style, *names], title="", x=x, y=y, above=above, xmlns="http://www.w3.org/2000/svg"))


def dot_chart(dots: Sequence[tuple[float, float, str]], *, title: str, x: str, y: str) -> Markup:
    """Returns a figure of named dots with one scale for both axes, and a diagonal."""
    if not dots:
        return Markup()
    values = [value for dot in dots for value in dot[:2]]
    low, high = min(0.0, *values), max(1.0, *values)
    axes = _Axes(low, high, low, high)
    same = _tag("line", x1=axes.x(low), y1=axes.y(low), x2=axes.x(high), y2=axes.y(high), class_="grid")
    marks = [
        _tag("circle", Markup("<title>{}</title>").format(name), cx=axes.x(a), cy=axes.y(b), r=3.5,
             fill="var(--series-1)", fill_opacity=0.5)
        for a, b, name in dots
    ]  # fmt: skip
    return _figure(title, _svg([axes.grid(x, y), same, *marks], title=title))


def bar_chart(series: Sequence[Series], *, title: str, x: str, y: str, width: float) -> Markup:
    """Returns a figure of grouped bars. Empty without a bar.

    Args:
        series: their points are the middles and heights of bars.
        title: says what the chart shows.
        x: label of the horizontal axis, with its unit.
        y: label of the vertical axis, with its unit.
        width: of all bars at one place, in units of x.
    """
    middles = [middle for one in series for middle, _ in one.points]
    if not middles:
        return Markup()
    top = max(height for one in series for _, height in one.points) or 1.0
    axes = _Axes(min(middles) - width / 2, max(middles) + width / 2, 0.0, top)
    each = width * 0.9 / len(series)
    bars = []
    for place, one in enumerate(series):
        for middle, height in one.points:
            left = axes.x(middle - width * 0.45 + place * each)
            size = {"width": axes.x(each) - axes.x(0), "height": axes.y(0) - axes.y(height)}
            bars.append(_tag("rect", x=left, y=axes.y(height), fill=one.colour, **size))
    return _figure(title, _svg([axes.grid(x, y), *bars], title=title), _keys(series, is_line=False))


def part_bars(bars: Sequence[Bar], *, title: str) -> Markup:
    """Returns a figure of bars on one scale, each made of parts, with names as HTML text. Empty without bars."""
    if not bars:
        return Markup()
    total = max(sum(part.amount for part in bar.parts) for bar in bars) or 1.0
    rows = []
    for bar in bars:
        at, rects = 0.0, []
        for part in bar.parts:
            size = 100 * part.amount / total
            about = Markup("<title>{}: {}</title>").format(part.label, _number(part.amount))
            if part.label:
                rects.append(_tag("rect", about, x=at, y=0, width=size, height=1, fill=part.colour))
            at += size
        said = ", ".join(f"{_number(part.amount)} {part.label}" for part in bar.parts if part.amount and part.label)
        drawing = _tag("svg", Markup().join(rects), class_="part", viewBox="0 0 100 1", preserveAspectRatio="none",
                       role="img", aria_label=f"{bar.label} {said}".strip())  # fmt: skip
        rows.append(Markup("<tr><th>{}</th><td>{}</td><td>{}</td></tr>").format(bar.label, drawing, bar.note))
    parts = {part.label: part.colour for bar in bars for part in bar.parts if part.label}
    keys = [Series(label=label, points=(), colour=colour) for label, colour in parts.items()]
    table = Markup('<table class="parts">{}</table>').format(Markup().join(rows))
    return _figure(title, table, _keys(keys, is_line=False))


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
        for value in _ticks(self.bottom, self.top):
            at = self.y(value)
            parts.append(_tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=at, y2=at, class_="grid"))
            parts.append(_text(_number(value), x=_LEFT - 6, y=at + 4, text_anchor="end"))
        for value in _ticks(self.left, self.right):
            parts.append(_text(_number(value), x=self.x(value), y=_HEIGHT - 28, text_anchor="middle"))
        middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
        parts.append(_text(x, x=middle, y=_HEIGHT - 6, text_anchor="middle"))
        return Markup().join([*parts, _text(y, x=0, y=13)])


def _lines(
    series: Sequence[Series], extra: Sequence[Markup] = (), *, title: str, x: str, y: str, **attributes: Any
) -> Markup:
    values = [value for one in series for _, value in one.points]
    values += [bound for one in series for _, *bounds in one.intervals for bound in bounds]
    steps = [step for one in series for step, _ in one.points]
    axes = _Axes(min(0.0, *steps), max(*steps, 1.0), min(0.0, *values), max(1.0, *values))
    drawn = [*extra, axes.grid(x, y)]
    for one in series:
        path = " ".join(f"{axes.x(a):.1f},{axes.y(b):.1f}" for a, b in one.points)
        drawn += _draw_intervals(one, axes)
        drawn.append(_tag("polyline", points=path, **_stroke(one)))
        if len(one.points) <= _MAX_MARKED:
            drawn += [_tag("circle", cx=axes.x(a), cy=axes.y(b), r=3, fill=one.colour) for a, b in one.points]
    label = title or f"{', '.join(one.label for one in series)} over {x}"
    return _svg(drawn, title=label, **attributes)


def _draw_intervals(series: Series, axes: _Axes) -> list[Markup]:
    """Returns a line for each of few intervals, and a band of many."""
    lows = [(axes.x(x), axes.y(low)) for x, low, _ in series.intervals]
    highs = [(axes.x(x), axes.y(high)) for x, _, high in series.intervals]
    if len(lows) > _MAX_MARKED:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*lows, *reversed(highs)])
        return [_tag("polygon", points=corners, fill=series.colour, fill_opacity=0.2, stroke="none")]
    pairs = zip(lows, highs, strict=True)
    return [_tag("line", x1=x, x2=x, y1=low, y2=high, **_stroke(series)) for (x, low), (_, high) in pairs]


def _stroke(series: Series) -> dict[str, Any]:
    dashes = {"stroke_dasharray": series.dashes} if series.dashes else {}
    return {"fill": "none", "stroke": series.colour, "stroke_width": 2, "stroke_linejoin": "round", **dashes}


def _last(series: Series) -> str:
    return f"{series.label}: {series.points[-1][1]:.2f}"


def _keys(series: Sequence[Series], *, is_line: bool = True) -> Markup:
    """Returns the legend as HTML."""
    keys = []
    for one in series:
        mark = _tag("line", x1=0, x2=28, y1=6, y2=6, **_stroke(one)) if is_line else _tag(
            "rect", width=28, height=12, fill=one.colour)  # fmt: skip
        sample = _tag("svg", mark, viewBox="0 0 28 12", aria_hidden="true")
        keys.append(Markup("<span>{}{}</span>").format(sample, _last(one) if is_line else one.label))
    return Markup('<div class="keys">{}</div>').format(Markup().join(keys))


def _figure(title: str, drawing: Markup, keys: Markup = Markup()) -> Markup:  # noqa: B008
    return Markup("<figure><figcaption>{}{}</figcaption>{}</figure>\n").format(title, keys, drawing)


def _svg(parts: Iterable[Markup], *, title: str, above: int = 0, **attributes: Any) -> Markup:
    box = f"0 {-above} {_WIDTH} {_HEIGHT + above}"
    return _tag("svg", Markup().join(parts), viewBox=box, role="img", aria_label=title, class_="chart", **attributes)


def _text(text: str, **attributes: Any) -> Markup:
    return _tag("text", escape(text), **attributes)


def _tag(name: str, content: Markup = Markup(), /, **attributes: Any) -> Markup:  # noqa: B008
    """Returns an element; underscores in names of attributes become hyphens."""
    shown = [
        f'{key.rstrip("_").replace("_", "-")}="{escape(f"{value:.1f}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
    ]
    return Markup(f"<{' '.join([name, *shown])}>{content}</{name}>")


def _ticks(low: float, high: float) -> list[float]:
    """Returns three to six round numbers inside an interval."""
    rough = (high - low) / 4 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [count * step for count in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
