"""Requirements of a release's tests, installed from wheels into a folder of the store."""

from __future__ import annotations

import email
import importlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.swe.grading.repo_task import TaskStore, read_tree, tree_key
from verl_agentic.swe.releases.file_kinds import kind_of
from verl_agentic.swe.releases.package_names import normal_name, parse_named
from verl_agentic.swe.releases.pip import PipIndex
from verl_agentic.swe.releases.wheels import install_wheels

PYTEST = "pytest>=8,<8.4"
_TEST_GROUPS = ("test", "tests", "testing")
_PLUGINS_OF_CI = re.compile(
    r"^(pytest-(cov|xdist|benchmark|mypy|ruff|checkdocs|enabler)|coverage|tox|nox|mypy|ruff|black)$"
)


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Requirements of the tests of a release."""

    needed: list[str]
    """Requirements of the modules."""
    optional: list[str]
    """Requirements that the release names for tests."""
    dropped: list[str]
    """Those that name no package: URLs, paths, options of pip. They are not installed."""


def requirements_of(files: Mapping[str, bytes], *, extra: Sequence[str] = ()) -> Requirements:
    """Returns the requirements of a release: those of its modules, and those that it names for tests.

    Args:
        files: of the release.
        extra: further needed requirements.

    Raises:
        ConfigError: one of `extra` names no package.
    """
    if bad := [text for text in extra if parse_named(text) is None]:
        raise ConfigError(f"a requirement is a package with versions, got {bad}; leave out URLs, paths and options")
    needed, optional, dropped = [PYTEST, *extra], [], []
    metadata = email.message_from_bytes(files.get("PKG-INFO", b""))
    name = normal_name(str(metadata.get("Name", "")))
    for text in map(str, metadata.get_all("Requires-Dist", [])):
        requirement = parse_named(text)
        if requirement is None:
            dropped.append(text)
            continue
        group = next((test_group for test_group in _TEST_GROUPS if _is_needed(requirement, extra=test_group)), None)
        if _is_needed(requirement, extra=""):
            needed.append(_without_marker(requirement))
        elif group is not None:
            optional.append(_without_marker(requirement))
    for text in _dependency_groups(files):
        requirement = parse_named(text)
        if requirement is None:
            dropped.append(text)
        elif _is_needed(requirement, extra=""):
            optional.append(_without_marker(requirement))
    skipped = {name, "pytest"}
    return Requirements(
        needed=_drop_repeated(needed, skipped={name}),
        optional=[
            text for text in _drop_repeated(optional, skipped=skipped) if not _PLUGINS_OF_CI.match(_parse_name(text))
        ],
        dropped=dropped,
    )


@dataclass(frozen=True, kw_only=True)
class InstalledSite:
    """Installed requirements in a store."""

    key: str
    missing: list[str]
    """Optional requirements that have no wheel."""
    dropped: list[str]
    """Requirements that name no package."""


def install_site(
    store: TaskStore,
    index: PipIndex,
    requirements: Requirements,
    *,
    without: Iterable[str],
    backend: str,
    source: Path | None = None,
) -> InstalledSite:
    """Installs requirements into the store.

    Args:
        store: takes the site.
        index: has the wheels.
        requirements: the optional ones are left out if they cannot be installed.
        without: names of modules that are removed, because the tree under test has them.
        backend: name of the sandbox backend that pip runs in.
        source: a folder of installed packages that is copied instead.

    Raises:
        DataError: a needed requirement has no wheel, or pytest itself needs the modules under test.
        SandboxError: the sandbox failed.
    """
    store.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=store.folder, prefix=".site-"))
    try:
        missing, dropped = _fill_folder(folder, index, requirements, backend=backend, source=source)
        _remove_modules(folder, set(without))
        folder.chmod(0o755)
        key = tree_key(read_tree(folder))[:16]
        store.add_site(folder, key=key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return InstalledSite(key=key, missing=missing, dropped=[*requirements.dropped, *sorted(dropped)])


def _fill_folder(
    folder: Path, index: PipIndex, requirements: Requirements, *, backend: str, source: Path | None
) -> tuple[list[str], set[str]]:
    """Puts packages into an empty folder; returns missing optional requirements, and dropped ones of packages."""
    if source is not None:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        return [], set()
    needed, optional = requirements.needed, requirements.optional
    try:
        return [], install_wheels(index, [*needed, *optional], into=folder, backend=backend)
    except DataError:
        if not optional:
            raise
    shutil.rmtree(folder)
    folder.mkdir()
    return list(optional), install_wheels(index, needed, into=folder, backend=backend)


def top_modules(files: Mapping[str, bytes], *, root: str) -> set[str]:
    """Returns the names of the modules and packages of a tree."""
    prefix = f"{root}/" if root else ""
    names: set[str] = set()
    for path in files:
        if path.startswith(prefix) and kind_of(path) == "source":
            parts = path.removeprefix(prefix).split("/")
            names.add(parts[0].removesuffix(".pyi").removesuffix(".py"))
    return names


def _remove_modules(folder: Path, names: set[str]) -> None:
    needed = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "py"} & names
    if needed:
        raise DataError(f"pytest itself needs the modules under test, got {sorted(needed)}; leave the package out")
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / f"{name}.py").unlink(missing_ok=True)


def _is_needed(requirement: Requirement, *, extra: str) -> bool:
    try:
        return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    except Exception:  # a stranger wrote the marker, and it may compare anything
        return False


def _without_marker(requirement: Requirement) -> str:
    requirement.marker = None
    return str(requirement)


def _parse_name(text: str) -> str:
    return normal_name(re.split(r"[^A-Za-z0-9._-]", text.strip())[0])


def _drop_repeated(texts: Iterable[str], *, skipped: set[str]) -> list[str]:
    """Returns the first requirement of each name."""
    texts_by_name: dict[str, str] = {}
    for text in texts:
        if _parse_name(text) not in skipped:
            texts_by_name.setdefault(_parse_name(text), text)
    return list(texts_by_name.values())


def _dependency_groups(files: Mapping[str, bytes]) -> list[str]:
    """Returns the requirements of the groups for tests in pyproject.toml (PEP 735); empty before Python 3.11."""
    try:
        tomllib: Any = importlib.import_module("tomllib")
        groups = tomllib.loads(files.get("pyproject.toml", b"").decode()).get("dependency-groups", {})
    except (ImportError, ValueError, RecursionError):
        return []
    lists = [groups.get(name) for name in _TEST_GROUPS] if isinstance(groups, dict) else []
    return [text for group in lists if isinstance(group, list) for text in group if isinstance(text, str)]
