"""Paths that a patch touches; finds tests and files that can change how tests run."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice

_FENCE = "```"
_HEADER = re.compile(r"(?:---|\+\+\+|\*\*\*|Index:|rename from|rename to|copy from|copy to) (.*)")
_GIT_HEADER = "diff --git "
_SECOND_PATH = re.compile(r' "?b/')
_OCTAL = re.compile(rb"\\([0-7]{3})")
_BODY = ("@@ ", "rename to ", "copy to ", "deleted file mode ", "new file mode ", "new mode ", "GIT binary patch")
_CONFIGURATION = (
    # Read by test runners.
    "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml", "setup.cfg", "setup.py",
    "pyproject.toml", "noxfile.py", "Makefile", "makefile", "GNUmakefile", "*.mk", ".coveragerc", "runtests.py",
    "nose.cfg", ".noserc", "unittest.cfg", "package.json", "jest.config.*", "vitest.config.*", "karma.conf.*",
    ".mocharc*", ".npmrc", "phpunit.xml*", ".rspec", "go.mod", "go.sum", "go.work", "Cargo.toml", "Cargo.lock",
    "build.rs", "rust-toolchain*",
    # Loaded automatically by Python or pytest.
    "conftest.py", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg", "*.pth", "*.egg-link", "entry_points.txt",
    # Hides the source of the same name.
    "*.pyc", "*.pyo", "*.so", "*.pyd",
)  # fmt: skip
_HARNESS_MODULES = frozenset(
    ("pytest", "_pytest", "pluggy", "iniconfig", "unittest", "doctest", "nose", "nose2", "mock", "coverage", "xdist",
     "hypothesis", "py", "tox", "nox", "sitecustomize", "usercustomize")
)  # fmt: skip
_SOURCE_FOLDERS = frozenset({"src", "lib", "python"})
_HARNESS_FOLDERS = frozenset({".cargo", "node_modules"})
_TEST_NAMES = (
    "test_*.py", "*_test.py", "tests.py", "*_test.go", "*.test.*", "*.spec.*", "*Test.java", "*Tests.java", "*_spec.rb",
)  # fmt: skip
_TEST_FOLDERS = frozenset({"tests", "__tests__", "testdata", "test_data", "test-data"})
_TEST_ROOTS = ("test", "bin/test")


def touched_paths(diff: str) -> set[str]:
    """Returns all paths in a diff's headers, old and new, without `a/` and `b/`.

    Lines inside of hunks that look like headers count too, so wrong hunk sizes cannot hide a file.
    """
    paths: set[str] = set()
    for line in diff.splitlines():
        if line.startswith(_GIT_HEADER):
            paths |= _git_paths(line[len(_GIT_HEADER) :])
        elif header := _HEADER.match(line):
            paths.add(_parse_path(header[1].partition("\t")[0]))
    return paths - {"", "/dev/null", "dev/null"}


def _git_paths(names: str) -> set[str]:
    """Returns the paths of `diff --git`; they may have spaces, so every split before `b/` counts."""
    cuts = [match.start() for match in islice(_SECOND_PATH.finditer(names), 8)]
    return {_parse_path(part) for cut in cuts for part in (names[:cut], names[cut + 1 :])}


def _parse_path(name: str) -> str:
    """Returns the path of a header, unquoted and without prefix."""
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        raw = _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 255]), name[1:-1].encode())
        name = raw.decode("utf-8", "replace").replace('\\"', '"').replace("\\\\", "\\")
    if name == "/dev/null":
        return name
    return posixpath.normpath(name[2:] if name.startswith(("a/", "b/")) else name).lstrip("/")


def edited_tests(paths: Iterable[str], *, protected: Iterable[str] = (), allowed: Iterable[str] = ()) -> list[str]:
    """Returns the paths of tests and of files that can change how tests run, sorted.

    Args:
        paths: paths of a patch.
        protected: paths that are tests whatever their names.
        allowed: paths of the reference patch. They and their folders may contain configuration or harness modules, but
            no tests.
    """
    protected_paths = {posixpath.normpath(path) for path in protected}
    allowed_paths = {posixpath.normpath(path) for path in allowed}
    folders = {posixpath.dirname(path) for path in allowed_paths} - {""}

    def is_refused(path: str) -> bool:
        if path in protected_paths or is_test(path):
            return True
        return is_harness(path) and path not in allowed_paths and posixpath.dirname(path) not in folders

    return sorted(path for path in set(paths) if is_refused(path))


def is_test(path: str) -> bool:
    """Returns whether a path is a test, in a folder of tests, or such a folder (a patch may replace it by a link)."""
    name = posixpath.basename(path)
    return (
        not _TEST_FOLDERS.isdisjoint(path.split("/"))
        or any(path == root or path.startswith(f"{root}/") for root in _TEST_ROOTS)
        or any(fnmatchcase(name, pattern) for pattern in _TEST_NAMES)
    )


def is_harness(path: str) -> bool:
    """Returns whether a file can change how tests run: configuration, what runs in a build, installed packages, files
    that Python or pytest load, or a module that shadows pytest, unittest or the standard library.
    """
    folder, name = posixpath.split(path)
    if any(fnmatchcase(name, pattern) for pattern in _CONFIGURATION) or not _HARNESS_FOLDERS.isdisjoint(
        path.split("/")
    ):
        return True
    if not name.endswith(".py"):
        return False
    parts = path.removesuffix(".py").split("/")
    if not _HARNESS_MODULES.isdisjoint(parts[:2]):
        return True
    at_top = parts[1:] if folder and parts[0] in _SOURCE_FOLDERS else parts
    is_module = len(at_top) == 1 or (len(at_top) == 2 and name == "__init__.py")
    return is_module and at_top[0] in sys.stdlib_module_names


def extract_diff(text: str) -> str | None:
    """Returns the unified diff in a text: the last fenced diff, else everything from the first header on, else None.

    A diff has a header and a hunk, a rename or the like.
    """
    blocks = text.split(_FENCE)[1::2]
    fenced = [block.partition("\n")[2] for block in blocks]
    for block in reversed(fenced):
        if _is_diff(block):
            return block
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.startswith((_GIT_HEADER, "--- ", "Index: "))), len(lines))
    rest = "".join(lines[start:])
    return rest if _is_diff(rest) else None


def _is_diff(text: str) -> bool:
    lines = text.splitlines()
    has_header = any(line.startswith((_GIT_HEADER, "+++ ")) for line in lines)
    return has_header and any(line.startswith(_BODY) for line in lines)
