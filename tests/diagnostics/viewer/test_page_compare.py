"""Several runs on one page: the choice of a run, common curves, the comparison, and episodes of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from looks import check_looks
from stored_runs import stored_run
from test_viewer_server import data

from verl_agentic.cli import main
from verl_agentic.observe.comparison.compare_runs import compare_runs
from verl_agentic.observe.viewer.run_view import RunView

TASK = "37 * 91 #1"


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of 12 tasks and a hostile one; the second run is longer, and has another key."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [stored_run(folder / name, None, steps=steps, groups=12) for name, steps in (("base", 3), ("mine", 4))]
    for run, gamma in zip(runs, (1.0, 0.9), strict=True):
        (run / "config.yaml").write_text(yaml.safe_dump({"trainer": {}, "algorithm": {"gamma": gamma, "lam": 1.0}}))
    return runs


@pytest.fixture(scope="module")
def both_url(run_dirs: list[Path], serve: Any) -> Iterator[str]:
    with serve(*map(RunView, run_dirs)) as server:
        yield server.url


def test_data_are_those_of_the_run_that_a_request_names(both_url: str, run_dirs: list[Path]) -> None:
    assert data(both_url, "runs") == (200, ["base", "mine"])
    assert [data(both_url, "metrics", name="episode/acc", run=run)[1]["steps"][-1] for run in (0, 1)] == [3, 4]
    for run, step in enumerate((3, 4)):
        status, rows = data(both_url, "episodes", task=TASK, run=run)
        assert status == 200 and [row["session"] for row in rows] == [0, 1, 2, 3]
        assert {(row["step"], row["task_id"], row["split"]) for row in rows} == {(step, TASK, "train")}
    assert data(both_url, "episodes", task="none") == (200, [])
    status, answer = data(both_url, "run", run=2)
    assert status == 400 and "got run 2" in answer["error"]


def test_the_comparison_is_that_of_the_command(both_url: str, run_dirs: list[Path]) -> None:
    status, shown = data(both_url, "comparison")
    figures = compare_runs(run_dirs)
    assert status == 200 and shown["config"] == [["algorithm.gamma", ["1.0", "0.9"]]]
    assert [curve["label"] for curve in shown["curves"]] == ["base", "mine"]
    assert [curve["values"] for curve in shown["curves"]] == [[mean for _, mean, _, _ in r.curve] for r in figures.runs]
    outcomes = dict(map(tuple, shown["tasks"]))
    assert shown["num_tasks"] == len(outcomes) == 13
    assert outcomes[TASK] == [run.tasks[TASK] for run in figures.runs]
    gaps = [abs(first - second) for _, (first, second) in shown["tasks"]]
    assert gaps == sorted(gaps, reverse=True) and gaps[0] > 0


def test_runs_are_chosen_and_their_curves_are_drawn_together(open_page: Callable[..., Any], both_url: str) -> None:
    page = open_page(both_url + "#m=batch%2Fentropy")
    assert page.locator("#run option").all_inner_texts() == ["base", "mine"] and not page.is_visible("#run-name")
    page.wait_for_selector(".uid >> text=g0003-")
    page.select_option("#run", "1")
    page.wait_for_selector(".uid >> text=g0004-")
    page.click("#tab-curves")
    page.wait_for_selector(".chart[data-metric='batch/entropy'] polyline.c1")
    assert page.locator(".chart polyline").count() == 2
    assert page.locator(".chart output").inner_text().split()[::2] == ["base", "mine"]
    again = open_page(page.url)
    again.wait_for_selector(".chart polyline.c1")
    assert again.input_value("#run") == "1"


@pytest.mark.slow
def test_a_page_of_one_run_has_no_choice_and_no_comparison(
    open_page: Callable[..., Any], run_dirs: list[Path], serve: Any
) -> None:
    with serve(RunView(run_dirs[0])) as server:
        page = open_page(server.url + "#tab=compare")
        assert page.is_visible("#panel-trajectories") and page.is_visible("#run-name")
        assert not page.is_visible("#run-line") and not page.is_visible("#tab-compare")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_episodes_of_one_task_are_beside_each_other(open_page: Callable[..., Any], both_url: str, scheme: str) -> None:
    page = open_page(both_url, color_scheme=scheme, reduced_motion="reduce")
    page.click("#tab-compare")
    page.wait_for_selector("#compare .chart polyline.c1")
    assert "algorithm.gamma" in page.inner_text("#compare") and "algorithm.lam" not in page.inner_text("#compare")
    page.click(f"#compare button >> text={TASK}")
    page.wait_for_selector("#task-episodes .box >> nth=1")
    heads = page.locator("#task-episodes h3").all_inner_texts()
    assert heads == ["base · step 3", "mine · step 4"]
    assert page.locator("#task-episodes .box >> nth=1").locator(".card").count() == 4
    page.click("#task-episodes .box >> nth=1 >> .card[data-session='2']")
    page.wait_for_selector("#task-episodes .box >> nth=1 >> .card[data-session='2'][aria-current=true]")
    page.set_viewport_size({"width": 390, "height": 850})
    check_looks(page, scheme=scheme)
    page.click("#task-episodes .box >> nth=1 >> text=All about this trajectory")
    page.wait_for_selector(".trajectory-head >> text=step 4 · session 2")
    assert page.input_value("#run") == "1"
    page.click("text=This task in all runs")
    page.wait_for_selector("#task-episodes .box >> nth=1")


def test_what_a_hostile_model_wrote_stays_text_in_the_comparison(open_page: Callable[..., Any], both_url: str) -> None:
    page = open_page(both_url + "#tab=compare")
    page.click("#compare button >> text=<script>window.broken = 1</script>")
    page.wait_for_selector("#task-episodes .box >> nth=1")
    assert page.evaluate("window.broken") is None
    assert page.locator("#compare :is(script, img)").count() == 0 and "⟦ESC⟧" in page.inner_text("#task-episodes")


def test_several_runs_are_not_exported(
    run_dirs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", *map(str, run_dirs), "--export", str(tmp_path / "page.html")]) == 2
    assert "verl-agentic compare --out" in capsys.readouterr().err
