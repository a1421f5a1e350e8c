"""Finds test files that a diff or an editing tool changes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from verl_agentic.graders.code.patch_paths import is_test

Edit = tuple[str, bool]
"""A path, and whether the edit may have made the file."""

_RUN_BY_TESTS = frozenset({"conftest.py", "pytest.ini", "sitecustomize.py", "usercustomize.py"})
_OLD = re.compile(r"--- (?:a/)?([^\t\n]+)")
_NEW = re.compile(r"\+\+\+ (?:b/)?([^\t\n]+)")
_MARKED = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_PATHS = frozenset({"path", "file_path", "filepath", "filename", "file", "target_file", "target"})
_WORD = re.compile(r"[a-z]+")
_MAKES = frozenset({"write", "create", "save", "overwrite"})
_CHANGES = frozenset({"edit", "replace", "insert", "append", "delete", "remove", "modify", "patch", "update"})
_CHANGES_COMMANDS = frozenset({"str_replace", "insert", "edit", "append", "delete", "remove", "replace"})
_OLD_TEXTS = ("old_str", "old_string", "old_text", "search", "insert_line")


def is_test_file(path: str) -> bool:
    """Returns whether a path is a test, lies among tests, or is loaded by every test run."""
    path = posixpath.normpath(path.strip())
    name = posixpath.basename(path)
    return name in _RUN_BY_TESTS or is_test(path)


def is_file(path: str) -> bool:
    """Returns whether a path looks like a file, by its name."""
    return "." in posixpath.basename(path).strip(".")


def edits_of_diff(text: str) -> Iterator[Edit]:
    """Yields the files that a unified diff, or a patch with `*** Update File:` lines, changes."""
    old = ""
    for line in text.splitlines():
        if marked := _MARKED.match(line):
            yield marked[2].strip(), marked[1] == "Add"
        elif match := _OLD.match(line):
            old = match[1].strip()
        elif (match := _NEW.match(line)) and old:
            new = match[1].strip()
            yield (old if new == "/dev/null" else new), old == "/dev/null"
            old = ""


def edits_of_call(name: str, arguments: Mapping[str, Any]) -> Iterator[Edit]:
    """Yields the file that a call of an editing tool changes.

    A tool edits if its name or its argument `command` says so.
    """
    key = next(filter(_PATHS.__contains__, arguments), "")
    path = arguments.get(key)
    if not isinstance(path, str):
        return
    command = arguments.get("command")
    if isinstance(command, str):
        changes, makes = command in _CHANGES_COMMANDS, command in _MAKES
    else:
        words = set(_WORD.findall(name.lower()))
        changes, makes = bool(words & _CHANGES), bool(words & _MAKES)
    if changes or makes:
        has_old = any(arguments.get(key) for key in _OLD_TEXTS)
        yield path, not has_old and (makes or not changes)
