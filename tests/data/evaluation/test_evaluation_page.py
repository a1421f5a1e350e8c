"""The page of an evaluation: which tasks it lists, and what its picture and its result say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_agentic.evaluate.evaluation_page import figure_rows, shown_tasks, write_evaluation_page
from verl_agentic.evaluate.evaluation_run import summarise


def record(task: int, sample: int, outcome: float, *, void: bool = False) -> dict[str, Any]:
    numbers = dict.fromkeys(("num_turns", "model_tokens", "response_tokens", "tool_calls", "tool_errors"), 1.0)
    stop = "infra_error" if void else "answered"
    return {"uid": f"t{task}", "task_id": f"row {task}", "session": sample, "index": 0, "is_void": void, "acc": outcome,
            "stop_reason": stop, "error": "gone" if void else "", "id_source": "exact", "numbers": numbers}  # fmt: skip


def page_of(folder: Path, records: list[dict[str, Any]], **changes: Any) -> str:
    summary = {"env": "e", "model": "m", "mode": "chat", "out": "o", **summarise(records)}
    write_evaluation_page(folder / "report.html", summary=summary, rows=records, **changes)
    return (folder / "report.html").read_text()


def test_tasks_with_the_most_failures_are_listed_first_and_no_more_than_200_episodes() -> None:
    records = [record(task, sample, float(task % 2)) for task in range(80) for sample in range(8)]
    shown = shown_tasks(records)
    assert sum(map(len, shown.values())) == 200
    assert list(shown) == [f"t{task}" for task in range(0, 50, 2)]
    assert len(shown_tasks([record(0, sample, 0.0) for sample in range(300)])["t0"]) == 300, "tasks are whole"


def test_the_result_has_the_interval_of_the_summary(tmp_path: Path) -> None:
    records = [record(task, sample, float(task < 3)) for task in range(4) for sample in range(2)]
    low, high = summarise(records)["success"]["ci95"]
    html = page_of(tmp_path, records)
    assert f">pass@1 0.75 [{low:.2f}, {high:.2f}] on 4 tasks</h1>" in html
    assert "75 % are solved in one attempt, 75 % within 2" in html
    assert html.count(">2 of 2<") == 3
    # The plot is 180 high and begins at 34: the bar at k = 1 spans the same interval.
    assert f'y1="{34 + 180 * (1 - low):.1f}" y2="{34 + 180 * (1 - high):.1f}"' in html


def test_one_attempt_at_each_task_shows_how_episodes_end_and_void_ones_apart(tmp_path: Path) -> None:
    html = page_of(tmp_path, [record(0, 0, 1.0), record(1, 0, 0.0), record(2, 0, 0.0, void=True)], viewer="v.html")
    assert "2 of 3 episodes end with answered" in html and "pass@k" not in html and html.count("<figure>") == 1
    assert 'href="v.html#split=val&amp;step=0&amp;uid=t2&amp;session=0&amp;index=0">1 void</a>' in html


def test_an_evaluation_without_an_episode_that_counts_says_so(tmp_path: Path) -> None:
    html = page_of(tmp_path, [record(0, 0, 0.0, void=True)])
    assert ">0 of 1 episodes count: all are void</h1>" in html and "1 x gone" in html


def test_the_figures_end_with_the_void_episodes() -> None:
    rows = figure_rows(summarise([record(0, 0, 1.0), record(1, 0, 0.0, void=True)]))
    assert (
        rows[0] == ("tasks", "1", "1 episodes")
        and rows[1][:2] == ("success", "1")
        and rows[-1] == ("void", "1", "of 2")
    )
