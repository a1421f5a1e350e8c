"""The task `patch` as a task of `swe`: a small repository, visible and hidden tests, and a reference solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic import EnvRow
from verl_agentic.base.paths import cache_dir
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, tree_key
from verl_agentic.swe.grading.tree_diffs import tree_diff
from verl_agentic.swe.sample_store import PYTEST_SITE, add_pytest

from .modules import WeakModule

STATEMENT = (
    "`{path}` has a security weakness: with chosen arguments, a caller gets what the docstring of a function keeps "
    "secret. Find the function and fix it. All honest calls must return what they return now."
)


def patch_columns(module: WeakModule, task_id: str) -> dict[str, Any]:
    """Returns the columns of a row: the task, and the files of its repository and of its hidden tests."""
    sources = [module.write_source(is_fixed=is_fixed) for is_fixed in (False, True)]
    wrong, right = ({module.path: source.encode()} for source in sources)
    visible, hidden = (
        {module.test_path: module.write_tests(is_hidden=is_hidden).encode()} for is_hidden in (False, True)
    )
    f2p, p2p = module.split_tests()
    task = RepoTask(
        instance_id=task_id,
        repo="security",
        base_commit=tree_key({**wrong, **visible}),
        problem_statement=STATEMENT.format(path=module.path),
        patch=tree_diff({**wrong}, {**right}),
        test_patch=tree_diff({**visible}, {**hidden}),
        fail_to_pass=tuple(f2p),
        pass_to_pass=tuple(p2p),
        kind="mutation",
        tests=tree_key(hidden),
        site=PYTEST_SITE,
        targets=(module.test_path,),
    )
    return {
        "task": task.to_json(),
        "files": {path: content.decode() for path, content in {**wrong, **visible}.items()},
        "tests": {path: content.decode() for path, content in hidden.items()},
    }


def store_files(row: EnvRow) -> TaskStore:
    """Writes the files of a row to the store in the user's folder for caches, and returns it."""
    store = TaskStore(cache_dir() / "security")
    store.add_tree(_encode_files(row.extra["files"]))
    store.add_tests(_encode_files(row.extra["tests"]))
    if not (store.folder / "sites" / PYTEST_SITE).is_dir():
        add_pytest(store)
    return store


def _encode_files(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}
