"""The report: one file that needs nothing else, shows what was learned, and runs nothing that a model wrote."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.diagnostics.report import chart, write_report

EVIL = '</pre><script>alert("x")</script><img src=http://evil.example/x.png onerror=alert(1)>'


def episode(index: int, text: str, outcome: float = 0.0) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "stop_reason": "answered",
        "segments": [
            {"kind": "prompt", "text": f"question {index}"},
            {"kind": "model", "text": text},
            {"kind": "tool", "text": f"observation {index} {EVIL}"},
            {"kind": "user", "text": "a user"},
            {"kind": "framework", "text": "a separator"},
        ],
    }


METRICS = [
    {"step": step, "episode/acc": step / 10, "episode/used_tool": 0.5, "critic/score/mean": step / 20}
    for step in range(1, 6)
]


class Page(HTMLParser):
    """The page's tags, and the text of every class."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("span", "b", "h2", "h3", "text", "td", "style"):
            self._open.append(dict(attrs).get("class") or tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("span", "b", "h2", "h3", "text", "td", "style"):
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


@pytest.fixture
def html(tmp_path: Path) -> str:
    path = tmp_path / "report.html"
    write_report(
        path,
        figures={"success_rl": 0.875, "steps": 5, EVIL: EVIL},
        metrics=METRICS,
        before=[episode(i, f"before {i} {EVIL}") for i in range(5)],
        after=[episode(i, f"after {i}", outcome=1.0) for i in range(5)],
    )
    return path.read_text(encoding="utf-8")


def test_the_page_loads_nothing_and_runs_nothing(html: str) -> None:
    page = Page(html)
    frame, content = (
        {"html", "head", "meta", "title", "style", "body"},
        {"h1", "h2", "h3", "p", "div", "b", "pre", "span"},
    )
    drawing = {"table", "tr", "td", "svg", "line", "text", "polyline"}
    assert {tag for tag, _ in page.tags} <= frame | content | drawing
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert not attributes & {"src", "href", "onerror", "onload", "srcset", "data", "style", "xlink:href"}
    style = "".join(page.texts["style"])
    assert "url(" not in style and "@import" not in style
    assert "<script" not in html and "<img" not in html


def test_what_a_model_or_a_tool_wrote_is_shown_as_text(html: str) -> None:
    page = Page(html)
    assert f"before 0 {EVIL}" in "".join(page.texts["model"])
    assert f"observation 0 {EVIL}" in "".join(page.texts["tool"])
    assert EVIL in "".join(page.texts["td"])


def test_three_episodes_before_and_three_after_with_what_the_policy_only_read_greyed_out(html: str) -> None:
    page = Page(html)
    model = "".join(page.texts["model"])
    shown = [[f"{when} {i}" in model for i in range(5)] for when in ("before", "after")]
    assert shown == [[True, True, True, False, False]] * 2
    assert html.index("Before RL") < html.index("before 0") < html.index("After RL") < html.index("after 0")
    assert (page.texts["bad"], page.texts["good"]) == (["wrong"] * 3, ["right"] * 3)
    (rule,) = re.findall(r"^(\.prompt.*?)\{(.*?)\}", html, flags=re.MULTILINE)
    assert {s.strip() for s in rule[0].split(",")} == {".prompt", ".tool", ".user", ".framework"}
    assert "opacity" in rule[1]
    kinds = {attrs.get("class") for tag, attrs in page.tags if tag == "span"}
    assert kinds == {"prompt", "model", "tool", "user", "framework"}


def test_learning_curve_and_reward_parts_are_drawn_with_their_last_values(html: str) -> None:
    page = Page(html)
    assert page.texts["h2"] == ["Learning curve", "Reward parts", "Episodes"]
    assert sum(tag == "svg" for tag, _ in page.tags) == 2
    legend = "".join(page.texts["text"])
    assert [name in legend for name in ("success (0.50)", "tool used (0.50)", "tool errors", "outcome (0.50)")] == [
        True,
        True,
        False,  # no step has it
        True,
    ]
    assert "reward that trains (0.25)" in legend
    assert "0.875" in page.texts["td"] and "5" in page.texts["td"]


def points(svg: str) -> list[tuple[float, float]]:
    (line,) = re.findall(r'polyline points="([^"]*)"', svg)
    return [tuple(map(float, pair.split(","))) for pair in line.split()]  # type: ignore[misc]


def test_a_curve_rises_from_left_to_right_inside_the_picture() -> None:
    # The plot is 640 x 220 with 36 left, 8 right, 24 above and below: step 5 of 5 at x = 632, 1.0 at y = 24.
    drawn = points(chart([{"step": 0, "m": 0.0}, {"step": 5, "m": 1.0}], {"label": ("m", "#000")}))
    assert drawn == [(36.0, 196.0), (632.0, 24.0)]
    drawn = points(chart([{"step": 1, "m": -3.0}, {"step": 2, "m": 7.0}], {"label": ("m", "#000")}))
    assert [y for _, y in drawn] == [196.0, 24.0]


def test_values_that_are_no_numbers_leave_gaps() -> None:
    metrics = [{"step": 1, "m": 0.5}, {"step": 2, "m": None}, {"step": 3, "m": float("nan")}, {"step": 4, "m": 1}]
    assert len(points(chart(metrics, {"label": ("m", "#000")}))) == 2
    assert chart(metrics, {"label": ("absent", "#000")}) == ""
