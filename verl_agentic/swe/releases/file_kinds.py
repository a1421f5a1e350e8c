"""Kinds of files in a repository, and the source changes between two releases."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Mapping
from typing import Literal

from verl_agentic.graders.code.patch_paths import is_harness, is_test

Kind = Literal["source", "test", "config", "docs", "other"]

_TEST_FILE = re.compile(r"(^|/)(test|test_[^/]*|[^/]*_tests?|tests)\.py$")
_TEST_FOLDER = re.compile(r"(^|/)(tests?|testsuite|unittests)/")
_NO_SOURCE = re.compile(
    r"^(docs?|documentation|examples?|samples|benchmarks?|tools|scripts|misc|ci|bin|artwork)/|(^|/)(tasks|versioneer)\.py$"
)
_DOCS = re.compile(r"\.(rst|md|txt|adoc)$|(^|/)(CHANGE|HISTORY|NEWS|README|AUTHORS)[^/]*$", re.I)
_META = re.compile(r"(^|/)(PKG-INFO$|[^/]+\.egg-info/|\.)")
_VERSION_LINE = re.compile(
    r"version|copyright|release|__date__|__author__|^\s*$|commit_id|^\s*\(?\d+, ?\d+|^\d|\bdate\b", re.I
)
_VERSION_ASSIGNMENT = re.compile(
    r"^(__(?:version|version_info|date|copyright)__|VERSION|version_info) *= *"
    r"""(?:"[^"\n]*"|'[^'\n]*'|\([\d, ]+\)) *$""",
    re.M,
)


def kind_of(path: str) -> Kind:
    """Returns the kind of a file. Sources are Python files outside of tests, documentation and configuration."""
    if _META.search(path):
        return "other"
    if is_test(path) or _TEST_FOLDER.search(path) or _TEST_FILE.search(path):
        return "test"
    if is_harness(path):
        return "config" if posixpath.basename(path) != "conftest.py" else "test"
    if _DOCS.search(path):
        return "docs"
    if path.endswith((".py", ".pyi")) and not _NO_SOURCE.search(path):
        return "source"
    return "other"


def test_targets(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Returns the files that pytest is called with."""
    return tuple(sorted(path for path in files if kind_of(path) == "test" and _TEST_FILE.search(path)))


def tests_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns tests with their configuration and data."""
    return {path: content for path, content in files.items() if kind_of(path) == "test"}


def source_root(files: Mapping[str, bytes]) -> str:
    """Returns `src` if the modules are there, else an empty text."""
    for root in ("src", "lib"):
        if any(path.startswith(f"{root}/") and kind_of(path) == "source" for path in files):
            return root
    return ""


def source_changes(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> dict[str, tuple[str | None, str | None]]:
    """Returns path -> (old text, new text) of source files; None for a missing file.

    Files that differ in lines about versions, dates or copyright only are left out, and files that are not UTF-8. The
    old texts have the version of the new ones.
    """
    changes: dict[str, tuple[str | None, str | None]] = {}
    for path in sorted({*old, *new}):
        if kind_of(path) != "source" or old.get(path) == new.get(path):
            continue
        try:
            sides = tuple(content.decode() if (content := tree.get(path)) is not None else None for tree in (old, new))
        except UnicodeDecodeError:
            continue
        before, after = sides
        if not is_version_only(before or "", after or ""):
            changes[path] = (_with_version_of(before, after), after)
    return changes


def is_version_only(old: str, new: str) -> bool:
    """Returns whether all changed lines are about versions, dates or copyright, or are empty."""
    return all(map(_VERSION_LINE.search, changed_lines(old, new)))


def _with_version_of(old: str | None, new: str | None) -> str | None:
    """Returns the old text with the assignments of versions and dates that the new text has."""
    if old is None or new is None:
        return old
    assignments = {match[1]: match[0] for match in _VERSION_ASSIGNMENT.finditer(new)}
    return _VERSION_ASSIGNMENT.sub(lambda match: assignments.get(match[1], match[0]), old)


def changed_lines(old: str, new: str) -> list[str]:
    """Returns the removed and the added lines, without signs."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    return [line[1:] for line in list(lines)[2:] if line[0] in "+-"]
