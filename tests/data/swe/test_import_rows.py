"""Rows of other datasets become tasks; missing columns are errors that name them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.cli import main
from verl_agentic.data.prepare import to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.swe.exchange.import_rows import import_tasks
from verl_agentic.swe.exchange.row_formats import task_of_row
from verl_agentic.swe.grading.pytest_ids import is_pytest_id
from verl_agentic.swe.grading.repo_task import TaskStore

_PATCH = "--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
_TEST_PATCH = "--- a/tests/test_m.py\n+++ b/tests/test_m.py\n@@ -1 +1 @@\n-a\n+b\n"
_COMMON: dict[str, Any] = {
    "instance_id": "own__kit-1", "repo": "own/kit", "base_commit": "c0ffee", "problem_statement": "wrong",
    "patch": _PATCH, "test_patch": _TEST_PATCH, "hints_text": "", "version": "1",
    "FAIL_TO_PASS": '["tests/test_m.py::a"]', "PASS_TO_PASS": '["tests/test_m.py::b"]',
}  # fmt: skip
_ROWS: dict[str, dict[str, Any]] = {
    "swe-bench": {**_COMMON, "image": "own/image:1", "log_parser": "parse_log_pytest", "eval_type": "pass_and_fail",
                  "eval_script": "pytest"},
    "swe-bench-old": {**_COMMON, "created_at": "2024", "environment_setup_commit": "c0ffee"},
    "swe-gym": {**_COMMON, "FAIL_TO_PASS": ["tests/test_m.py::a"], "PASS_TO_PASS": ["tests/test_m.py::b"]},
    "swe-smith": {
        key: value for key, value in {**_COMMON, "image_name": "own/smith:1"}.items() if key not in ("base_commit",)
    },
    "nemotron": {**{k: v for k, v in _COMMON.items() if k != "patch"}, "golden_patch": _PATCH},
    "nemo-gym": {"responses_create_params": {"input": [], "metadata": {
        "instance_id": "own__kit-1", "instance_dict": json.dumps(_COMMON)}}},
}  # fmt: skip
_IMAGES = {
    "swe-bench": "own/image:1",
    "swe-bench-old": "swebench/sweb.eval.x86_64.own_1776_kit-1:latest",
    "swe-gym": "xingyaoww/sweb.eval.x86_64.own_s_kit-1:latest",
    "swe-smith": "own/smith:1",
    "nemotron": "",
    "nemo-gym": "xingyaoww/sweb.eval.x86_64.own_s_kit-1:latest",
}


@pytest.mark.parametrize("form", _ROWS)
def test_each_format_is_detected_and_mapped(form: str) -> None:
    task = task_of_row(_ROWS[form])
    assert (task.instance_id, task.repo, task.kind) == ("own__kit-1", "own/kit", "imported")
    assert (task.fail_to_pass, task.pass_to_pass) == (("tests/test_m.py::a",), ("tests/test_m.py::b",))
    assert task.image == _IMAGES[form] and task.targets == ("tests/test_m.py",)
    assert ("+x = 1" if form == "swe-smith" else "+x = 2") in task.patch


_V2: dict[str, Any] = {
    **_COMMON, "image_name": "swerebench/sweb.eval.x86_64.own_1776_kit-1", "language": "python", "interface": "",
    "install_config": {"log_parser": "parse_log_pytest", "test_cmd": ["pytest -q"]}, "meta": {"llm_metadata": {}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "image"),
    [
        ({}, _V2["image_name"]),
        ({"install_config": json.dumps(_V2["install_config"])}, _V2["image_name"]),
        ({"docker_image": "own/rebench:1", "environment_setup_commit": "c0ffee"}, "own/rebench:1"),
        ({"install_config": None}, _V2["image_name"]),
        ({"install_config": None, "image_name": None, "docker_image": "own/live:1"}, "own/live:1"),
        (
            {"install_config": None, "image_name": None, "environment_setup_commit": "a", "docker_image": "own:1"},
            "own:1",
        ),
    ],
)
def test_patches_that_fix_keep_their_direction_and_rows_their_own_image(more: dict[str, Any], image: str) -> None:
    task = task_of_row({**_V2, **more})
    assert task.patch == _PATCH and task.test_patch == _TEST_PATCH and task.image == image


@pytest.mark.parametrize(
    "columns",
    [
        {"image_name": "swebench/swesmith.x86_64.own__kit", "base_commit": "c0ffee"},
        {"image_name": "own/image:1", "base_commit": None},
        {"image_name": "own/image:1", "base_commit": None, "test_patch": None},
        {"image_name": "own/image:1", "test_patch": None},
    ],
)
def test_rows_whose_patch_may_go_both_ways_are_refused_with_the_choices(columns: dict[str, Any]) -> None:
    row = {**_COMMON, **columns}
    with pytest.raises(DataError, match="--format"):
        task_of_row(row)
    assert "+x = 1" in task_of_row(row, form="swe-smith").patch


def test_a_row_with_two_lists_of_one_kind_is_refused() -> None:
    lower = {"fail_to_pass": _COMMON["FAIL_TO_PASS"], "p2p": _COMMON["PASS_TO_PASS"]}
    named = {key: value for key, value in _COMMON.items() if "_TO_" not in key} | lower
    assert task_of_row(named).fail_to_pass == ("tests/test_m.py::a",) == task_of_row({**_COMMON, **lower}).fail_to_pass
    with pytest.raises(DataError, match="FAIL_TO_PASS"):
        task_of_row({**_COMMON, "f2p": ["tests/test_m.py::c"]})


@pytest.mark.parametrize(
    "written",
    [["t.py::a", "t.py::b's"], '["t.py::a", "t.py::b\'s"]', "['t.py::a', \"t.py::b's\"]", ("t.py::a", "t.py::b's"),
     np.array(["t.py::a", "t.py::b's"], dtype=object)],
)  # fmt: skip
def test_lists_of_tests_are_read_from_lists_arrays_and_texts(written: Any) -> None:
    assert task_of_row({**_COMMON, "FAIL_TO_PASS": written}).fail_to_pass == ("t.py::a", "t.py::b's")


@pytest.mark.parametrize("written", ["t.py::a", "['t.py::a'", "[1]", "{'a': 1}", 7, "__import__('os')"])
def test_an_error_shows_the_list_that_cannot_be_read(written: Any) -> None:
    with pytest.raises(DataError, match=rf"FAIL_TO_PASS must be a list .* got {re.escape(repr(str(written)))}"):
        task_of_row({**_COMMON, "FAIL_TO_PASS": written})


@pytest.mark.parametrize(("env", "options"), [("repo_search", {"source": "tasks"}), ("swe_edit", {})])
def test_imported_tasks_are_refused_where_their_files_are_needed(
    env: str, options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**_ROWS["swe-gym"], "instance_id": f"own__kit-{number}"} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tasks = tmp_path / "imported" / "tasks.jsonl"
    assert main(["swe", "import", str(tmp_path / "rows.jsonl"), "--out", str(tasks)]) == 0
    words = [word for key, value in {**options, "tasks": str(tasks)}.items() for word in ("--option", f"{key}={value}")]
    counts = ["--train", "2", "--test", "1", "--out", str(tmp_path / env)]
    assert main(["prepare", env, *words, *counts]) != 0
    said = capsys.readouterr().err
    assert "2 of 2" in said and "swe mine" in said and not (tmp_path / env).exists()

    package = load_env_package(env)
    assert package.make_rows is not None
    made = package.make_rows(split="train", count=2, seed=0, **options)
    moved = [replace(row, extra={**row.extra, "store": str(tmp_path / "imported")}) for row in made]
    for kept, code in ((made, 0), (moved, 2)):
        write_parquet(to_records(kept, env_id=env, split="train", agent_name="env_agent"), tmp_path / "rows.parquet")
        assert main(["prepare", env, "--check", str(tmp_path / "rows.parquet")]) == code
    assert "tasks have no files" in capsys.readouterr().err


def test_r2e_rows_split_tests_by_the_log_of_the_old_commit() -> None:
    row = {
        "repo_name": "kit", "docker_image": "own/r2e:1", "commit_hash": "0123456789abcdef",
        "problem_statement": "wrong",
        "expected_output_json": json.dumps({"T.a": "PASSED", "b": "PASSED", "c": "FAILED"}),
        "execution_result_content": json.dumps({"old_commit_res_stdout": "PASSED t.py::b\nFAILED t.py::T::a - x\n"}),
    }  # fmt: skip
    task = task_of_row(row)
    assert (task.fail_to_pass, task.pass_to_pass, task.reference) == (("T.a",), ("b",), {"c": "failed"})
    assert task.image == "own/r2e:1" and not task.flags
    without = task_of_row({key: value for key, value in row.items() if key != "execution_result_content"})
    assert set(without.fail_to_pass) == {"T.a", "b"} and "f2p_unknown" in without.flags


def test_missing_columns_are_named() -> None:
    row = {key: value for key, value in _ROWS["swe-gym"].items() if key != "test_patch"}
    with pytest.raises(DataError, match="test_patch"):
        task_of_row(row)
    with pytest.raises(DataError, match="'test_patch'"):
        task_of_row(row, form="swe-gym")
    with pytest.raises(ConfigError, match="format"):
        task_of_row(row, form="other")


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_files_of_all_kinds_are_read(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [_ROWS["swe-gym"], {**_ROWS["swe-gym"], "instance_id": "own__kit-2"}]
    path, out = tmp_path / f"rows{suffix}", tmp_path / "tasks.jsonl"
    if suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif suffix == ".json":
        path.write_text(json.dumps({row["instance_id"]: row for row in rows}))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    out = tmp_path / "out" / "tasks.jsonl"
    assert main(["swe", "import", str(path), "--out", str(out)]) == 0
    assert "2 with an image" in capsys.readouterr().out
    assert [task.instance_id for task in TaskStore(out).tasks()] == ["own__kit-1", "own__kit-2"]


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    for name, content, message in (
        ("a.jsonl", json.dumps(_COMMON) + "\n" + json.dumps(_COMMON) + "\n", "row 2: the id .* is there twice"),
        ("b.json", "1", "must hold a list"), ("c.parquet", "no", "not parquet"), ("d.csv", "x", "jsonl"),
        ("e.jsonl", "", "no rows"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=message):
            import_tasks(tmp_path / name)


_FOREIGN = (
    "test_x (app.tests.C)", "test_x (app.tests.C.test_x)", "Regression for models.py", "test_x", "T.test_x",
    "app.tests.C.test_x", "tests/test_a.py", "tests/test_a.py::test_x[a", "tests test_a.py::b", "::test_x", "",
    "tests/test_a::test_x",
)  # fmt: skip


@pytest.mark.parametrize("name", _FOREIGN)
@pytest.mark.parametrize("column", ["FAIL_TO_PASS", "PASS_TO_PASS"])
def test_rows_that_pytest_cannot_grade_are_refused_and_counted(
    name: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = _ROWS["swe-gym"]
    bad = [{**good, column: [*good[column], name], "instance_id": f"bad-{number}"} for number in range(2)]
    path, out = tmp_path / "rows.jsonl", tmp_path / "out" / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (good, *bad)))
    with pytest.raises(DataError, match="2 of 3"):
        import_tasks(path)
    assert main(["swe", "import", str(path), "--out", str(out)]) != 0 and not out.exists()
    capsys.readouterr()
    assert main(["swe", "import", str(path), "--out", str(out), "--pytest-only"]) == 0
    assert "2 rows are left out" in capsys.readouterr().out
    assert [task.instance_id for task in TaskStore(out).tasks()] == [good["instance_id"]]


@pytest.mark.parametrize(
    "name",
    ["tests/test_a.py::test_x", "a/b_test.py::T::test_x[a b::c (d)]", "README.rst::README.rst", "t.py::test_x[a[0]]"],
)
def test_pytest_ids_are_accepted(name: str) -> None:
    assert is_pytest_id(name)


@pytest.mark.parametrize("name", _FOREIGN)
def test_older_rows_with_such_tests_are_errors_and_no_episodes(name: str, tmp_path: Path) -> None:
    swe, edit = load_env_package("swe"), load_env_package("swe_edit")
    assert swe.make_rows is not None
    (row,) = swe.make_rows(split="train", count=1, seed=0)
    task = {**json.loads(row.extra["task"]), "FAIL_TO_PASS": [name]}
    changed = replace(row, extra={**row.extra, "task": json.dumps(task)})
    for package in (swe, edit):
        with pytest.raises(DataError, match="1 of 1 tasks"):
            package.make_env(changed)
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    with pytest.raises(DataError, match="1 of 1 tasks"):
        swe.make_rows(split="train", count=1, seed=0, tasks=str(tmp_path))
