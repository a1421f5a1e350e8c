"""Charts: numbers lie where the axes say, names of anything are text, and files name their lines."""

from __future__ import annotations

import re

import pytest

from verl_agentic.web.pages.charts import (
    Bar,
    Part,
    Points,
    Series,
    bar_chart,
    dot_chart,
    line_chart,
    line_file,
    metric_points,
    part_bars,
)

# The plot is 560 x 260 with 50 left, 14 right, 34 above, 46 below.
LEFT, RIGHT, TOP, BOTTOM = 50.0, 546.0, 34.0, 214.0


def path(svg: str) -> list[tuple[float, float]]:
    (line,) = re.findall(r'polyline points="([^"]*)"', svg)
    return [tuple(map(float, pair.split(","))) for pair in line.split()]  # type: ignore[misc]


def drawn(*points: tuple[float, float]) -> list[tuple[float, float]]:
    return path(line_chart([Series(label="label", points=points)], title="t"))


def sizes(svg: str, name: str) -> list[float]:
    return [
        float(value) for rect in re.findall("<rect [^>]*>", svg) for value in re.findall(f' {name}="([^"]*)"', rect)
    ]


def test_a_line_rises_from_left_to_right_inside_the_picture() -> None:
    assert drawn((0, 0.0), (5, 1.0)) == [(LEFT, BOTTOM), (RIGHT, TOP)]
    assert [y for _, y in drawn((1, -3.0), (2, 7.0))] == [BOTTOM, TOP]
    assert line_chart([Series(label="label", points=())], title="t") == "" == line_file([])


def test_an_interval_spans_its_bounds() -> None:
    svg = line_chart([Series(label="l", points=[(1, 0.5)], intervals=[(1, 0.0, 1.0)])], title="t")
    assert f'x1="{RIGHT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{TOP}" fill="none"' in svg


def test_ticks_are_round_numbers_and_both_axes_have_labels() -> None:
    svg = line_chart([Series(label="l", points=[(0, 0.0), (40, 0.7)])], title="t", x="step of RL", y="share of tasks")
    texts = re.findall("<text [^>]*>([^<]*)</text>", svg)
    assert texts == [*["0", "0.5", "1"], *["0", "10", "20", "30", "40"], "step of RL", "share of tasks"]


def test_metrics_that_are_no_numbers_are_left_out() -> None:
    rows = [
        {"step": 1, "m": 0.5},
        {"step": 2, "m": None},
        {"step": 3, "m": float("nan")},
        {"step": 4},
        {"step": 5, "m": 1},
    ]
    assert metric_points(rows, "m") == [(1, 0.5), (5, 1.0)] and metric_points(rows, "absent") == []


def test_bars_stand_side_by_side_and_are_as_high_as_their_numbers() -> None:
    points: list[Points] = [[(1.0, 1.0), (2.0, 0.5)], [(1.0, 0.25), (2.0, 0.0)]]
    svg = bar_chart([Series(label="ab"[i], points=points[i]) for i in (0, 1)], title="t", x="x", y="y", width=1.0)
    full = BOTTOM - TOP
    assert sizes(svg, "height")[-4:] == pytest.approx([full, full / 2, full / 4, 0.0], abs=0.06)
    a, b, c, d = sizes(svg, "x")[-4:]
    assert LEFT < a < c < b < d < RIGHT


def test_parts_of_bars_share_one_scale() -> None:
    bars = [
        Bar(label="one", parts=[Part(label="a", amount=3, colour="red"), Part(label="b", amount=1, colour="blue")]),
        Bar(label="two", parts=[Part(label="a", amount=1, colour="red")]),
    ]
    svg = part_bars(bars, title="t")
    assert [width for width in sizes(svg, "width") if width != 28] == [75.0, 25.0, 25.0]
    assert svg.count("<span>") == 2 and part_bars([], title="t") == ""
    assert ">none</th>" in part_bars([Bar(label="none", parts=[])], title="t")


def test_names_and_titles_are_text() -> None:
    evil = '"><script>&'
    bars = [Bar(label=evil, parts=[Part(label=evil, amount=1, colour="red")], note=evil)]
    series = [Series(label=evil, points=[(1, 1.0)])]
    figures = [
        line_chart(series, title=evil, x=evil, y=evil),
        bar_chart(series, title=evil, x=evil, y=evil, width=1),
        dot_chart([(0.0, 1.0, evil)], title=evil, x=evil, y=evil),
        part_bars(bars, title=evil),
    ]
    assert all("<script" not in figure and figure.count("&lt;script") >= 4 for figure in figures)


def test_a_file_names_its_lines_above_the_chart_in_as_many_rows_as_they_need() -> None:
    series = [
        Series(label=f"a line with a long name {i}", points=[(0, 0.0), (1, i / 4)], colour="#000") for i in range(5)
    ]
    svg = line_file(series)
    assert svg.startswith('<svg viewBox="0 -54 560 314"') and 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert "a line with a long name 4: 1.00" in svg and "var(" not in svg
