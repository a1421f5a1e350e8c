"""The report: one file that shows the result first, and runs nothing that a model wrote."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.observe.quickstart_report import ComparedRun, write_report

EVIL = '</pre><script>alert("x")</script><img src=http://evil.example/x.png onerror=alert(1)>'


def episode(index: int, text: str, outcome: float = 0.0) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "question": f"task {index} {EVIL}",
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
FIGURES = {
    "success_base": 0.0,
    "success_sft": 0.375,
    "success_rl": 0.875,
    "greedy_sft": 0.25,
    "num_eval_tasks": 256,
    "steps": 5,
    "wall_s": 630.0,
    "cpu_s": 420.0,
    "peak_rss_gb": 6.04,
    "seed": 3,
}
_KEPT = ("span", "b", "h1", "h2", "h3", "text", "td", "style")


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
        if tag in _KEPT:
            self._open.append(dict(attrs).get("class") or tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _KEPT:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


# Of five tasks, 0 was right before, 3 stays wrong, and 4 became wrong.
BEFORE = [episode(i, f"before {i} {EVIL}", outcome=float(i in (0, 4))) for i in range(5)]
AFTER = [episode(i, f"after {i}", outcome=float(i in (0, 1, 2))) for i in range(5)]


def page_of(folder: Path, **changes: Any) -> str:
    path = folder / "report.html"
    given = {
        "figures": FIGURES,
        "stages": ["sft", "rl"],
        "metrics": METRICS,
        "before": BEFORE,
        "after": AFTER,
        "viewer": "viewer.html",
    }
    write_report(path, **{**given, **changes})
    return path.read_text(encoding="utf-8")


@pytest.fixture
def html(tmp_path: Path) -> str:
    return page_of(tmp_path, figures={**FIGURES, EVIL: EVIL})


def test_the_page_loads_nothing_and_runs_nothing(html: str) -> None:
    page = Page(html)
    frame = {"html", "head", "meta", "title", "style", "body"}
    content = {
        "header",
        "main",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
        "b",
        "pre",
        "span",
        "small",
        "code",
        "details",
        "summary",
        "a",
    }
    drawing = {"table", "tr", "td", "svg", "line", "text", "polyline", "circle", "figure", "figcaption"}
    assert {tag for tag, _ in page.tags} <= frame | content | drawing
    attributes = {name for tag, attrs in page.tags for name in attrs if tag != "a"}
    assert not attributes & {"src", "href", "onerror", "onload", "srcset", "data", "style", "xlink:href"}
    assert [attrs for tag, attrs in page.tags if tag == "a"] == [{"href": "viewer.html"}]
    style = "".join(page.texts["style"])
    assert "url(" not in style and "@import" not in style
    assert "<script" not in html and "<img" not in html


def test_costs_with_a_limit_have_curves_beside_that_of_the_work(tmp_path: Path) -> None:
    costs = {"cost/hacking/any/mean": 0.25, "cost/hacking/any/limit": 0.1, "episode/model_tokens": 40.0}
    html = page_of(tmp_path, metrics=[{**step, **costs} for step in METRICS])
    assert all(f"<figcaption>{title}" in html for title in ("Cost hacking/any and its limit", "Efficiency"))
    assert "<figcaption>Efficiency" not in page_of(tmp_path)


def test_what_a_model_or_a_tool_wrote_is_shown_as_text(html: str) -> None:
    page = Page(html)
    assert f"observation 1 {EVIL}" in "".join(page.texts["tool"])
    assert f"before 1 {EVIL}" in "".join(page.texts["model"])
    assert f"task 1 {EVIL}" in "".join(page.texts["h3"]) and EVIL in "".join(page.texts["td"])


def test_the_result_comes_first_and_the_raw_figures_last(html: str) -> None:
    page = Page(html)
    assert "".join(page.texts["result"]) == "From 38 % to 88 % of held-out tasks solved"
    tiles = [text for text in page.texts["b"] if text[0].isdigit()]
    assert tiles == ["0 %", "38 %", "88 %", "10.5 min", "6.0 GB"]
    assert page.texts["h2"] == [
        "Episodes after sft and after rl",
        "Every training episode",
        "All figures",
    ]
    assert html.index("</h1>") < html.index("<svg") < html.index("10.5 min") < html.index("<table")
    assert "success goes from 10 % in step 1 to 50 % in step 5" in html
    assert "7.0 min of CPU time, 5 steps of RL" in html
    assert "630.000" in page.texts["number"] and "success_rl" in page.texts["td"]


def test_tasks_that_changed_from_wrong_to_right_stand_side_by_side(html: str) -> None:
    page = Page(html)
    model = "".join(page.texts["model"])
    assert [f"after {i}" in model for i in range(5)] == [False, True, True, False, False]
    assert "2 of 5 tasks changed from wrong to right, 1 from right to\nwrong" in html
    assert (page.texts["bad"], page.texts["good"]) == (["wrong"] * 2, ["right"] * 2)
    # Left before, right after; in the order of the tasks.
    assert html.index("before 1") < html.index("after 1") < html.index("before 2") < html.index("after 2")
    kinds = {attrs.get("class") for tag, attrs in page.tags if tag == "span"}
    assert kinds >= {"prompt", "model", "tool", "user", "framework"}


def test_success_is_shown_for_each_kind_of_task(tmp_path: Path) -> None:
    labels = [{"kind": "sums" if i < 3 else EVIL, "is_new": "yes"} if i < 4 else {} for i in range(5)]
    before, after = (
        [{**task, "labels": names} for task, names in zip(tasks, labels, strict=True)] for tasks in (BEFORE, AFTER)
    )
    html = page_of(tmp_path, before=before, after=after)
    page = Page(html)
    assert page.texts["h2"][0] == "Held-out tasks by kind"
    rows = html.partition("by kind</h2>")[2].partition("</table>")[0].split("<tr>")[2:]
    cells = [Page(f"<table><tr>{row}</table>").texts for row in rows]
    assert [(row["td"][0], row["number"]) for row in cells] == [
        ("is_new: yes", ["4", "25 %", "75 %"]),
        (f"kind: {EVIL}", ["1", "0 %", "0 %"]),
        ("kind: sums", ["3", "33 %", "100 %"]),
    ]


def test_without_a_change_the_first_tasks_are_shown(tmp_path: Path) -> None:
    page = page_of(tmp_path, after=BEFORE)
    assert "None of 5 tasks changed from wrong to right" in page
    assert [f"before {i}" in page for i in range(5)] == [True, True, True, False, False]


def test_the_reward_that_trains_is_drawn_where_it_is_another_than_the_outcome(tmp_path: Path) -> None:
    legend = page_of(tmp_path)
    assert "real rewards: 0.50" in legend and "reward that trains: 0.25" in legend
    same = [{**row, "critic/score/mean": row["episode/acc"]} for row in METRICS]
    html = page_of(tmp_path, metrics=same)
    assert "reward that trains" not in html and html.count("<polyline") == 1


@pytest.mark.parametrize("is_control", [False, True])
def test_a_control_is_drawn_beside_the_run_that_learns(tmp_path: Path, is_control: bool) -> None:
    theirs = ComparedRun(
        figures={**FIGURES, "success_rl": 0.4},
        metrics=[{"step": 1, "episode/acc": 0.3}, {"step": 5, "episode/acc": 0.35}],
    )
    html = page_of(tmp_path, other=theirs, is_control=is_control)
    page = Page(html)
    mine, other = ("control: rewards shuffled", "real rewards")[:: 1 if is_control else -1]
    assert f"{mine}: 0.50" in html and f"{other}: 0.35" in html
    assert "40 %" in page.texts["b"] and ("must not learn" in html) is is_control
    # The run that learns has the same colour on both pages.
    lines = [attrs for tag, attrs in page.tags if tag == "polyline"]
    assert [attrs["stroke"] for attrs in lines][:2] == ["var(--series-1)", "var(--series-2)"]


def test_a_course_of_more_stages_has_a_curve_over_them(tmp_path: Path) -> None:
    figures = {**FIGURES, "success_dpo": 0.5}
    html = page_of(tmp_path, figures=figures, stages=["sft", "dpo", "rl"], metrics=[])
    assert "After each stage (0: untrained, 1: sft, 2: dpo, 3: rl)" in html and html.count("<polyline") == 1
    tiles = [text for text in Page(html).texts["b"] if text[0].isdigit()]
    assert tiles[:4] == ["0 %", "38 %", "50 %", "88 %"]


def test_without_a_viewer_there_is_no_link(tmp_path: Path) -> None:
    html = page_of(tmp_path, viewer="", run_dir="outputs/quickstart")
    assert "<a " not in html and "<code>verl-agentic view outputs/quickstart</code>" in html


def test_without_metrics_there_is_no_picture(tmp_path: Path) -> None:
    assert "<svg" not in page_of(tmp_path, metrics=[])
