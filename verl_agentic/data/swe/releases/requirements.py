"""Requirements of a release's tests, installed from wheels into a folder of the store."""

from __future__ import annotations

import email
import importlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from verl_agentic.data.swe.releases.file_kinds import kind_of
from verl_agentic.data.swe.releases.pip import PipIndex, normal_name
from verl_agentic.errors import DataError
from verl_agentic.rewards.repository.repo_task import TaskStore, read_tree, tree_key

PYTEST = "pytest>=8,<8.4"
_TEST_GROUPS = ("test", "tests", "testing")
_PLUGINS_OF_CI = re.compile(
    r"^(pytest-(cov|xdist|benchmark|mypy|ruff|checkdocs|enabler)|coverage|tox|nox|mypy|ruff|black)$"
)


def requirements_of(files: Mapping[str, bytes], *, extra: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Returns (needed, optional) requirements of a release: those of its modules, and those that it names for tests.

    Args:
        files: of the release.
        extra: further needed requirements.
    """
    needed, optional = [PYTEST, *extra], []
    metadata = email.message_from_bytes(files.get("PKG-INFO", b""))
    name = normal_name(metadata.get("Name", ""))
    for text in metadata.get_all("Requires-Dist", []):
        requirement = _parsed(text)
        if requirement is None:
            continue
        group = next((one for one in _TEST_GROUPS if _holds(requirement, extra=one)), None)
        if _holds(requirement, extra=""):
            needed.append(_without_marker(requirement))
        elif group is not None:
            optional.append(_without_marker(requirement))
    optional += _dependency_groups(files)
    skipped = {name, "pytest"}
    return _unique(needed, skipped={name}), [
        text for text in _unique(optional, skipped=skipped) if not _PLUGINS_OF_CI.match(_name(text))
    ]


def install_site(
    store: TaskStore,
    index: PipIndex,
    *,
    needed: Sequence[str],
    optional: Sequence[str],
    without: Iterable[str],
    given: Path | None = None,
) -> tuple[str, list[str]]:
    """Installs requirements into the store; returns the site's key, and optional requirements that have no wheel.

    Args:
        needed: requirements that must be there.
        optional: requirements that are left out if pip cannot install them.
        without: names of modules that are removed, because the tree under test has them.
        given: a folder of installed packages that is copied instead.

    Raises:
        DataError: a needed requirement has no wheel, or pytest itself needs the modules under test.
    """
    store.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=store.folder, prefix=".site-"))
    try:
        missing = _fill(folder, index, needed=needed, optional=optional, given=given)
        _remove_modules(folder, set(without))
        folder.chmod(0o755)
        key = tree_key(read_tree(folder))[:16]
        store.add_site(folder, key=key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return key, missing


def _fill(
    folder: Path, index: PipIndex, *, needed: Sequence[str], optional: Sequence[str], given: Path | None
) -> list[str]:
    """Puts packages into an empty folder; returns the optional requirements that are missing."""
    if given is not None:
        shutil.copytree(given, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        return []
    try:
        index.install_wheels([*needed, *optional], into=folder)
        return []
    except DataError:
        if not optional:
            raise
    shutil.rmtree(folder)
    folder.mkdir()
    index.install_wheels(needed, into=folder)
    return list(optional)


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


def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _holds(requirement: Requirement, *, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _without_marker(requirement: Requirement) -> str:
    requirement.marker = None
    return str(requirement)


def _name(text: str) -> str:
    return normal_name(re.split(r"[^A-Za-z0-9._-]", text.strip())[0])


def _unique(texts: Iterable[str], *, skipped: set[str]) -> list[str]:
    """Returns the first requirement of each name."""
    found: dict[str, str] = {}
    for text in texts:
        if _name(text) not in skipped:
            found.setdefault(_name(text), text)
    return list(found.values())


def _dependency_groups(files: Mapping[str, bytes]) -> list[str]:
    """Returns the requirements of the groups for tests in pyproject.toml (PEP 735); empty before Python 3.11."""
    try:
        tomllib: Any = importlib.import_module("tomllib")
        groups = tomllib.loads(files.get("pyproject.toml", b"").decode()).get("dependency-groups", {})
    except (ImportError, ValueError):
        return []
    names = [one for group in _TEST_GROUPS for one in groups.get(group, ()) if isinstance(one, str)]
    return [_without_marker(found) for text in names if (found := _parsed(text)) and _holds(found, extra="")]
