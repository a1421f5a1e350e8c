"""Repositories of rows: base trees of tasks, and the sources of installed packages."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from verl_agentic import ConfigError, DataError, EnvRow
from verl_agentic.base.paths import cache_dir
from verl_agentic.swe.grading.repo_task import TaskStore, tree_key
from verl_agentic.swe.task_split import require_trees, store_at

_MAX_FILE_BYTES = 400_000


def tree_of(row: EnvRow) -> Path:
    """Returns the folder of a row's repository.

    `extra["tree"]` is its key. It is in the store of tasks `extra["store"]` (empty for the sample), or made from the
    installed package `extra["package"]`.

    Raises:
        DataError: this machine has another version of the package, or the store lacks the tree.
    """
    key, package = row.extra["tree"], row.extra.get("package")
    store = _open_store() if package else store_at(row.extra["store"])
    if package and (actual_key := store.add_tree(package_files(package))) != key:
        raise DataError(
            f"the row was made for {package} {row.extra.get('version')}, got other files here ({actual_key[:12]} "
            f"instead of {key[:12]}); install that version, or make the rows anew"
        )
    folder = store.folder / "trees" / key
    if not folder.is_dir():
        raise DataError(f"the store has no tree of {row.extra.get('task_id')}, got {folder}; copy the folder of tasks")
    return folder


def check_row(row: EnvRow) -> None:
    """Raises DataError if the store of tasks lacks the row's repository."""
    if not row.extra.get("package"):
        require_trees(row.extra["store"], {str(row.extra.get("task_id")): row.extra["tree"]})


@functools.lru_cache(maxsize=16)
def package_files(name: str) -> Mapping[str, bytes]:
    """Returns path -> content of the Python sources of an installed distribution. They are read, never imported.

    Raises:
        ConfigError: it is not installed, or has no sources.
    """
    try:
        listed = distribution(name).files or ()
    except PackageNotFoundError as cause:
        raise ConfigError(f"packages must be installed, got {name!r}; run pip install {name}") from cause
    paths = [file for file in listed if file.suffix == ".py" and ".." not in file.parts and not file.is_absolute()]
    places = {file.as_posix(): Path(str(file.locate())) for file in paths}
    files = {
        path: place.read_bytes()
        for path, place in places.items()
        if place.is_file() and place.stat().st_size <= _MAX_FILE_BYTES
    }
    if not files:
        raise ConfigError(f"packages must have Python sources, got none in {name!r}; name another one")
    return files


def package_key(name: str) -> str:
    """Returns the key of a package's tree."""
    return tree_key(package_files(name))


def _open_store() -> TaskStore:
    return TaskStore(cache_dir() / "packages")
