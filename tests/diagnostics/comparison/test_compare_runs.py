"""Runs beside each other: outcomes and differences by hand, keys that differ, folders that cannot be compared."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.cli import main
from verl_agentic.log.run_files import find_runs
from verl_agentic.observe.comparison.compare_runs import NOT_SET, compare_runs


@pytest.fixture
def make_run(broken_runs: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes a healthy run of 3 logged steps with 4 groups of 4; `change` gets each training record."""

    def make(name: str, change: Callable[[dict[str, Any]], None] = lambda record: None, **config: Any) -> Path:
        run = broken_runs.healthy()
        for record in run.train:
            record["task_id"] = record["uid"]
            change(record)
        run.config |= config
        return run.write(tmp_path / name / "log")

    return make


def solve_first(record: dict[str, Any]) -> None:
    """Makes the first session of every group a success: groups of 2, 1, 3 and 1 successes get 2, 2, 3 and 2."""
    if record["session"] == 0:
        record["acc"] = 1.0


def test_means_and_errors_are_clustered_by_group(make_run: Callable[..., Path]) -> None:
    runs = compare_runs([make_run("plain"), make_run("better", solve_first)]).runs

    assert [run.name for run in runs] == ["plain", "better"]
    assert [run.success and run.success.value for run in runs] == [pytest.approx(7 / 16), pytest.approx(9 / 16)]
    # Groups of 3 steps differ from the mean by 1/4, -3/4, 5/4 and -3/4 successes, squared 2.75 a step; 12 groups.
    assert runs[0].success is not None
    assert runs[0].success.stderr == pytest.approx(math.sqrt(12 / 11 * 3 * 2.75) / 48)
    assert runs[0].window == (15, 24)
    assert [step for step, *_ in runs[0].curve] == [22, 23, 24]


def test_runs_with_the_same_tasks_are_subtracted_task_by_task(make_run: Callable[..., Path]) -> None:
    (paired,) = compare_runs([make_run("plain"), make_run("better", solve_first)]).differences

    # Per step, two of four groups gain 1/4.
    assert paired is not None and paired.num_tasks == 12 and paired.mean == pytest.approx(1 / 8)
    assert paired.high - paired.mean == pytest.approx(1.96 * math.sqrt(12 / 11 * 12 / 64) / 12)
    assert paired.is_clear


def test_runs_with_other_tasks_are_not_paired_and_void_episodes_do_not_count(make_run: Callable[..., Path]) -> None:
    def rename(record: dict[str, Any]) -> None:
        record["task_id"] = f"other-{record['uid']}"
        if record["session"] == 3:  # all failed
            record["is_void"] = True

    (difference,) = compare_runs([make_run("plain"), make_run("void", rename)]).differences

    assert difference is not None and difference.num_tasks == 0
    assert difference.mean == pytest.approx(7 / 12 - 7 / 16)
    assert not difference.is_clear


def test_one_group_of_each_run_makes_no_clear_difference_whatever_its_outcomes(make_run: Callable[..., Path]) -> None:
    def one_group(acc: float) -> Callable[[dict[str, Any]], None]:
        def change(record: dict[str, Any]) -> None:
            record["acc"] = acc
            record["is_void"] = record["uid"] != "s24g0"

        return change

    (difference,) = compare_runs([make_run("none", one_group(0.0)), make_run("all", one_group(1.0))]).differences

    # Newcombe's interval of 1 of 1 and 0 of 1: Wilson's are 0.2065 to 1 and 0 to 0.7935.
    assert difference is not None and difference.mean == 1.0 and not difference.is_clear
    assert difference.low == pytest.approx(1 - math.hypot(0.7935, 0.7935), abs=1e-3)


def test_only_keys_that_differ_are_shown_and_no_path_that_differs_by_the_name_alone(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    plain = make_run("plain", data={"max_response_length": 256, "train_files": f"{tmp_path}/plain/rows.jsonl"})
    other = make_run("other", data={"train_files": f"{tmp_path}/other/rows.jsonl"}, algorithm={"gamma": 0.9})

    assert compare_runs([plain, other]).config == {
        "data.max_response_length": [256, NOT_SET],
        "algorithm.gamma": [NOT_SET, 0.9],
    }


def test_the_command_writes_json_and_a_page(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, page = [str(make_run("plain")), str(make_run("better", solve_first))], tmp_path / "page.html"

    assert main(["compare", *runs, "--last", "1", "--json", "--out", str(page)]) == 0

    report = json.loads(capsys.readouterr().out)
    assert [run["window"] for run in report["runs"]] == [[24, 24], [24, 24]]
    assert report["differences"][0]["mean"] == pytest.approx(1 / 8)
    text = page.read_text()
    assert text.count("<polyline") == 2 and "better: +0.125" in text

    assert main(["compare", *runs]) == 0
    assert "+0.125" in capsys.readouterr().out


@pytest.mark.sample(2)
@pytest.mark.parametrize("command", ["compare", "diagnose", "view"])
def test_a_folder_of_several_runs_is_never_read_as_one(
    make_run: Callable[..., Path], tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run("one"), make_run("two")]

    assert find_runs(tmp_path) == runs
    assert main([command, str(tmp_path), *([str(runs[0])] if command == "compare" else [])]) == 2
    assert all(str(run) in capsys.readouterr().err for run in runs[:1])


def test_a_folder_without_steps_and_a_single_run_are_refused(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = make_run("run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        compare_runs([run, tmp_path / "empty"])
    assert main(["compare", str(run)]) == 2
