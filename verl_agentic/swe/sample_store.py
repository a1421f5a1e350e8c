"""Stores of tasks from bundled sample repositories, so that the environment works without any download."""

from __future__ import annotations

import ast
import difflib
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.base.errors import MissingDependencyError
from verl_agentic.base.paths import cache_dir
from verl_agentic.graders.code.patch_paths import is_test
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.runners.registry import REPORT_RUNNERS
from verl_agentic.swe.grading.runners.report_runner import ReportRunner
from verl_agentic.swe.grading.tree_diffs import tree_diff

SAMPLE = "sample/quill"
"""The begin of the name of each repository."""
_SAMPLE = Path(__file__).parent / "sample"
_PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
PYTEST_SITE = "pytest"
"""The key of the site with pytest."""
_APART = 6  # of two bugs of one task: even, so that both belong to one split


def sample_store(runner: str = "pytest") -> TaskStore:
    """Returns a store, and makes it once per version of the sample, in the user's folder for caches.

    Args:
        runner: `pytest` for the Python repository, or a name in `REPORT_RUNNERS` for that of another language.

    Raises:
        MissingDependencyError: pytest is not installed.
    """
    if runner in REPORT_RUNNERS:
        return _make_reported_store(REPORT_RUNNERS[runner])
    files = read_tree(_SAMPLE)
    try:
        versions = [distribution(name).version.encode() for name in _PYTEST]
    except PackageNotFoundError as cause:
        raise MissingDependencyError(f"the sample tasks need pytest, got {cause}; run pip install pytest") from cause
    parts = [Path(__file__).read_bytes(), *versions, *(files[path] for path in sorted(files))]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    folder = cache_dir() / f"swe_sample_{key}"
    if not (folder / "tasks.jsonl").is_file():
        store = TaskStore(folder)
        add_pytest(store)
        repository = {path.partition("/")[2]: content for path, content in files.items() if path.startswith("rep")}
        bugs = yaml.safe_load(files["bugs.yaml"])
        groups = [[bug] for bug in bugs] + [[bug, bugs[place - _APART]] for place, bug in enumerate(bugs)]
        store.write([_store_task(store, repository, group, number) for number, group in enumerate(groups, start=1)])
    return TaskStore(folder)


def _make_reported_store(runner: ReportRunner) -> TaskStore:
    """Returns the store of a repository of another language. Its visible tests are the files that no bug breaks."""
    files = read_tree(_SAMPLE / runner.name)
    parts = [Path(__file__).read_bytes(), *(files[path] for path in sorted(files))]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    store = TaskStore(cache_dir() / f"swe_sample_{runner.name}_{key}")
    if store.path.is_file():
        return store
    fixed = {path.partition("/")[2]: content for path, content in files.items() if path.startswith("repository/")}
    tests = {path: content for path, content in fixed.items() if is_test(path)}
    names = [
        f"{runner.target_of(path)}::{head['name']}"
        for path, content in tests.items()
        for head in runner.form.head.finditer(content.decode())
    ]
    tasks = []
    for number, bug in enumerate(yaml.safe_load(files["bugs.yaml"]), start=1):
        wrong = fixed[bug["file"]].replace(bug["old"].encode(), bug["new"].encode())
        broken_targets = {test.partition("::")[0] for test in bug["breaks"]}
        base = {
            path: text
            for path, text in fixed.items()
            if path not in tests or runner.target_of(path) not in broken_targets
        }
        visible = {path: base.get(path) for path in tests}
        tasks.append(
            RepoTask(
                instance_id=f"quill-{runner.name}-{number:02}",
                repo=f"{SAMPLE}-{runner.name}",
                version="1.0",
                base_commit=store.add_tree({**base, bug["file"]: wrong}),
                problem_statement=bug["issue"],
                patch=tree_diff({bug["file"]: wrong}, {bug["file"]: fixed[bug["file"]]}),
                test_patch=tree_diff(visible, tests),
                fail_to_pass=tuple(bug["breaks"]),
                pass_to_pass=tuple(name for name in names if name not in bug["breaks"]),
                kind="mutation",
                tests=store.add_tests(tests),
                runner=runner.name,
                targets=tuple(sorted({runner.target_of(path) for path in tests})),
            )
        )
    store.write(tasks)
    return store


def _store_task(
    store: TaskStore, fixed: Mapping[str, bytes], bugs: Sequence[Mapping[str, Any]], number: int
) -> RepoTask:
    """Returns the task of one or two bugs. The visible tests lack those that the bugs break."""
    breaks = [test for bug in bugs for test in bug["breaks"]]
    wrong = dict(fixed)
    for bug in bugs:
        wrong[bug["file"]] = wrong[bug["file"]].replace(bug["old"].encode(), bug["new"].encode())
    tests = {name: content for name, content in fixed.items() if name.startswith("tests/")}
    names = {test.partition("[")[0] for test in breaks}
    visible = {
        name: _remove_functions(
            content, (full_name.partition("::")[2] for full_name in names if full_name.startswith(name))
        )
        for name, content in tests.items()
    }
    everything = [test for name, content in tests.items() for test in _tests_of(name, content)]
    return RepoTask(
        instance_id=f"quill-{number:02}",
        repo=SAMPLE,
        version="1.0",
        base_commit=store.add_tree({**wrong, **visible}),
        problem_statement="\n".join(bug["issue"] for bug in bugs),
        patch="".join(_make_diff(path, wrong[path], fixed[path]) for path in sorted({bug["file"] for bug in bugs})),
        test_patch="".join(_make_diff(name, visible[name], tests[name]) for name in tests),
        fail_to_pass=tuple(breaks),
        pass_to_pass=tuple(test for test in everything if test not in names),
        kind="mutation" if len(bugs) == 1 else "combined",
        tests=store.add_tests(tests),
        site=PYTEST_SITE,
        targets=tuple(tests),
    )


def _remove_functions(content: bytes, names: Iterable[str]) -> bytes:
    """Returns a module of tests without some functions."""
    text, left_out = content.decode(), set(names)
    lines = text.split("\n")
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and node.name in left_out:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            del lines[first - 1 : node.end_lineno]
    return ("\n".join(lines).rstrip() + "\n").encode()


def _tests_of(path: str, content: bytes) -> Sequence[str]:
    """Returns the ids of the tests without parameters; a parametrised test that is kept counts by its function."""
    tree = ast.parse(content)
    return [
        f"{path}::{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not node.decorator_list
    ]


def _make_diff(path: str, old: bytes, new: bytes) -> str:
    before, after = (text.decode().splitlines(True) for text in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(lines)


def add_pytest(store: TaskStore) -> None:
    """Copies pytest of this environment into the store, as the site `pytest`."""
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        for name in _PYTEST:
            for file in distribution(name).files or ():
                if (file.suffix == ".py" or file.name == "METADATA") and ".." not in file.parts:
                    (site / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), site / file)
        store.add_site(site, key=PYTEST_SITE)
