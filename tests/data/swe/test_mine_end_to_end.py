"""From source distributions to checked tasks: mine, split, mutate, combine, check, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from releases_of_kit import NAME, write_releases, write_site

from verl_agentic.cli import main
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.tree_diffs import apply_diff

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that take releases and requirements from folders."""
    folder = tmp_path_factory.mktemp("kit")
    return ["--find-links", str(write_releases(folder / "sdists")), "--site", str(write_site(folder / "site"))]


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory, kit: list[str]) -> Path:
    """A file of mined, split and mutated tasks."""
    out = tmp_path_factory.mktemp("mined") / "tasks.jsonl"
    common = ["--json", "--backend", "namespaces"]
    assert main(["swe", "mine", NAME, "--out", str(out), *kit, *common]) == 0
    assert main(["swe", "split", str(out), *common]) == 0
    assert main(["swe", "mutate", f"{NAME}==1.1", "--max", "8", "--out", str(out), *kit, *common]) == 0
    return out


def _tasks(path: Path, kind: str) -> list[RepoTask]:
    return [task for task in TaskStore(path).tasks() if task.kind == kind]


def _json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def test_a_release_becomes_a_task_without_running_its_build(mined: Path) -> None:
    (task,) = _tasks(mined, "release")
    assert (task.instance_id, task.repo) == (f"pypi__{NAME}-1.1", f"pypi/{NAME}")
    assert task.fail_to_pass == (
        "tests/test_texts.py::TestHalves::test_nothing_is_lost",
        "tests/test_texts.py::test_limit_leaves_no_hyphen_at_the_end",
    )
    assert len(task.pass_to_pass) == 3 and "tests/test_texts.py::test_slug[A b]" in task.pass_to_pass
    assert "setup.py" not in task.patch and "__version__" not in task.patch


def test_the_statement_is_the_changelog_without_packaging_noise_and_the_hint_an_example(mined: Path) -> None:
    (task,) = _tasks(mined, "release")
    assert task.problem_statement == "- Fix ``slug``: a limit leaves no hyphen at the end"
    assert 'slug("ab cd", limit=3)' in task.hints_text or "halves([1, 2, 3, 4])" in task.hints_text
    assert "assert" in task.hints_text


def test_a_base_tree_has_neither_the_fix_nor_the_hidden_tests(mined: Path) -> None:
    store = TaskStore(mined)
    (task,) = _tasks(mined, "release")
    base = read_tree(store.base(task))
    assert b'strip("-")' not in base["src/mining_kit/texts.py"]
    assert b"nothing_is_lost" not in base["tests/test_texts.py"] and b"hyphen" not in base["CHANGES.rst"]
    fixed = apply_diff(base, task.patch)
    assert b'strip("-")' in fixed["src/mining_kit/texts.py"]
    assert apply_diff(base, task.test_patch)["tests/test_texts.py"] == store.hidden_tests(task)["tests/test_texts.py"]


def test_a_fix_splits_into_one_task_per_function(mined: Path) -> None:
    tasks = _tasks(mined, "hunk")
    assert {task.provenance["unit"]: task.fail_to_pass for task in tasks} == {
        "slug": ("tests/test_texts.py::test_limit_leaves_no_hyphen_at_the_end",),
        "halves": ("tests/test_texts.py::TestHalves::test_nothing_is_lost",),
    }
    for task in tasks:
        visible = read_tree(TaskStore(mined).base(task))["tests/test_texts.py"].decode()
        name = task.fail_to_pass[0].rpartition("::")[2]
        assert f"def {name}" not in visible and "def test_slug" in visible


def test_mutations_are_small_and_break_some_tests(mined: Path) -> None:
    tasks = _tasks(mined, "mutation")
    assert len(tasks) >= 3
    assert all(task.fail_to_pass and task.pass_to_pass and task.patch.count("\n+") <= 3 for task in tasks)


@pytest.mark.nightly
def test_all_tasks_hold_and_a_changed_one_does_not(mined: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swe", "combine", str(mined), "--max", "2", "--json", "--backend", "namespaces"]) == 0
    capsys.readouterr()
    assert main(["swe", "check", str(mined), "--runs", "1", "--json", "--backend", "namespaces"]) == 0
    found = _json(capsys)
    assert found["tasks"] == found["hold"] >= 7 and _tasks(mined, "combined")
    lines = [json.loads(line) for line in mined.read_text().splitlines()]
    lines[0]["PASS_TO_PASS"], lines[0]["FAIL_TO_PASS"] = lines[0]["FAIL_TO_PASS"], lines[0]["PASS_TO_PASS"]
    wrong = mined.with_name("wrong.jsonl")
    wrong.write_text(json.dumps(lines[0]) + "\n")
    assert main(["swe", "check", str(wrong), "--runs", "1", "--json", "--backend", "namespaces"]) == 1
    assert "base, run 1: 5 tests are wrong" in _json(capsys)["problems"][lines[0]["instance_id"]][0]


def test_finished_work_is_not_repeated(mined: Path, kit: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = mined.read_text()
    capsys.readouterr()
    assert main(["swe", "mine", NAME, "--out", str(mined), *kit, "--json", "--backend", "namespaces"]) == 0
    assert _json(capsys)["test_cpu_s"] == 0
    assert {json.loads(line)["instance_id"] for line in before.splitlines()} <= {
        json.loads(line)["instance_id"] for line in mined.read_text().splitlines()
    }


def test_a_release_with_new_version_numbers_only_is_no_task(mined: Path) -> None:
    journal = mined.with_suffix(".journal.jsonl").read_text().splitlines()
    results = {record["key"]: record["status"] for record in map(json.loads, journal)}
    assert results[f"mine {NAME} 1.1 1.1.1"] == "no source change"


def test_exports_have_the_layout_of_swebench(mined: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictions, repository = tmp_path / "preds.jsonl", tmp_path / "repo"
    code = main(["swe", "export", str(mined), "--predictions", str(predictions), "--task-repo", str(repository)])
    assert code == 0
    rows = [json.loads(line) for line in predictions.read_text().splitlines()]
    assert all(set(row) == {"instance_id", "model_name_or_path", "model_patch"} for row in rows)
    (task,) = _tasks(mined, "release")
    folder = repository / "tasks" / task.instance_id
    expected = {
        "task.yaml", "tests.json", "problem_statement.md", "hints.md", "gold.patch", "test.patch", "eval.sh",
        "Dockerfile", "test_assets", "repository", "hidden_tests", "site",
    }  # fmt: skip
    assert {path.name for path in folder.iterdir()} == expected
    assert (repository / "sweb.yaml").is_file() and (folder / "gold.patch").read_text() == task.patch
    assert ">>>>> Start Test Output" in (folder / "eval.sh").read_text()


@pytest.mark.nightly
def test_a_package_of_pypi_gives_tasks(tmp_path: Path) -> None:
    import socket

    try:
        socket.create_connection(("pypi.org", 443), timeout=5).close()
    except OSError:
        pytest.skip("PyPI cannot be reached")
    out = tmp_path / "tasks.jsonl"
    assert main(["swe", "mine", "parse", "--releases", "3", "--out", str(out), "--json"]) == 0
    assert main(["swe", "check", str(out), "--runs", "1", "--json"]) == 0
