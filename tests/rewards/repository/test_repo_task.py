"""Tasks survive JSON, and a store gives back what was put into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import DataError
from verl_agentic.swe.grading import repo_task
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree, tree_key, write_tree

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


def _task(**values: object) -> RepoTask:
    needed = {"instance_id": "a-1", "repo": "pypi/a", "problem_statement": "wrong", "fail_to_pass": ("t.py::x",)}
    return RepoTask(**{**needed, **values})  # type: ignore[arg-type]


@given(statement=_TEXT, names=st.lists(_TEXT, max_size=3), reference=st.dictionaries(_TEXT, _TEXT, max_size=3))
def test_a_task_survives_json(statement: str, names: list[str], reference: dict[str, str]) -> None:
    task = _task(problem_statement=statement, fail_to_pass=tuple(names), reference=reference)
    assert RepoTask.from_json(task.to_json()) == task
    assert "\n" not in task.to_json()


def test_unknown_columns_are_kept_as_provenance() -> None:
    row = {**json.loads(_task().to_json()), "created_at": "2024"}
    assert RepoTask.from_json(row).provenance == {"columns": {"created_at": "2024"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [({"FAIL_TO_PASS": None}, "lacks"), ({"FAIL_TO_PASS": "t"}, "test ids"), ({"kind": "odd"}, "kind must")],
)
def test_a_row_that_is_no_task_is_an_error(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        RepoTask.from_json({**json.loads(_task().to_json()), **change})


def test_a_store_gives_back_trees_and_tests(tmp_path: Path) -> None:
    store = TaskStore(tmp_path / "tasks")
    files = {"a.py": b"x = 1\n", "b/c.py": b""}
    task = _task(base_commit=store.add_tree(files), tests=store.add_tests({"tests/test_a.py": b"pass\n"}))
    store.write([task])
    assert list(TaskStore(store.path).tasks()) == [task]
    assert store.add_tree(files) == task.base_commit == tree_key(files)
    assert read_tree(store.base(task)) == files
    assert store.hidden_tests(task) == {"tests/test_a.py": b"pass\n"} and store.site(task) is None
    with pytest.raises(DataError, match="has no trees"):
        store.base(_task(base_commit="0" * 64))


def test_the_key_depends_on_paths_and_contents() -> None:
    keys = {tree_key(files) for files in ({"a": b"1"}, {"b": b"1"}, {"a": b"2"}, {"a": b"1", "b": b"1"}, {})}
    assert len(keys) == 5


def test_links_are_not_read_and_paths_outside_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/etc/hostname")
    assert read_tree(tmp_path) == {}
    with pytest.raises(DataError, match="below"):
        write_tree({"../x": b""}, tmp_path)


def test_a_site_that_another_process_adds_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, mine, theirs = TaskStore(tmp_path / "store"), tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
        (folder / "name.txt").write_text(folder.name)
    compiled = repo_task.compileall.compile_dir

    def compile_slowly(folder: Path, **options: Any) -> None:
        monkeypatch.setattr(repo_task.compileall, "compile_dir", compiled)
        store.add_site(theirs, key="key")

    monkeypatch.setattr(repo_task.compileall, "compile_dir", compile_slowly)
    store.add_site(mine, key="key")
    sites = store.folder / "sites"
    assert [path.name for path in sites.iterdir()] == ["key"]
    assert (sites / "key" / "name.txt").read_text() == "theirs"
    assert not mine.exists()
