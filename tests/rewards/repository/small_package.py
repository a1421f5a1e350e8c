"""A package with a bug, its fix and its tests; made for the tests of grading."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.sample_store import add_pytest

SLUG = '''"""Slugs."""

import re
import unicodedata

_WORD = re.compile(r"[^a-z0-9]+")


def slug(text, separator="-", max_length=0):
    """Returns a text as a name for addresses."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = _WORD.sub(separator, plain.lower()).strip(separator)
    return truncate(name, max_length, separator)


def truncate(name, max_length, separator="-"):
    """Returns a name of at most this length, which does not end with a separator."""
    if max_length <= 0 or len(name) <= max_length:
        return name
    return name[:max_length]


def words(name, separator="-"):
    """Returns the words of a name."""
    return [word for word in name.split(separator) if word]
'''
FIXED_SLUG = SLUG.replace("return name[:max_length]", "return name[:max_length].rstrip(separator)")
UNITS = '''"""Sizes."""

UNITS = ("B", "kB", "MB", "GB")


class Size:
    """A number of bytes."""

    def __init__(self, count):
        if count < 0:
            raise ValueError(f"a size is not negative, got {count}")
        self.count = count

    def __eq__(self, other):
        return isinstance(other, Size) and self.count == other.count

    def __hash__(self):
        return hash(self.count)

    def __str__(self):
        number = float(self.count)
        for unit in UNITS:
            if number < 1000 or unit == UNITS[-1]:
                return f"{number:g} {unit}"
            number /= 1000


def total(sizes):
    """Returns the sum of sizes."""
    return Size(sum(size.count for size in sizes))
'''
TEST_SLUG = """import pytest

from smallkit import slug, words

CASES = [("Hello World", "hello-world"), ("a  b", "a-b"), ("Été", "ete")]


def test_slug_is_lower():
    assert slug("ABC") == "abc"


@pytest.mark.parametrize("text, expected", CASES)
def test_cases(text, expected):
    assert slug(text) == expected


class TestWords:
    def test_words(self):
        found = words("a-b--c")
        if not found:
            return
        assert found == ["a", "b", "c"]

    def test_no_words(self):
        assert words("") == []
"""
TEST_TRUNCATE = """import pytest

from smallkit import slug, truncate


@pytest.fixture
def long_text():
    return "one two three"


def test_truncated_slug_has_no_separator(long_text):
    assert slug(long_text, max_length=4) == "one"


def test_truncate_keeps_words(long_text):
    name = slug(long_text)
    for length in (4, 8):
        assert not truncate(name, length).endswith("-")
"""
TEST_UNITS = """import unittest

import pytest

from smallkit import Size, total


class UnitsTest(unittest.TestCase):
    def setUp(self):
        self.size = Size(1500)

    def test_text(self):
        self.assertEqual(str(self.size), "1.5 kB")

    def test_small(self):
        for count in (1, 20, 300):
            with self.subTest(count=count):
                self.assertEqual(str(Size(count)), f"{count} B")

    def test_negative(self):
        with self.assertRaises(ValueError):
            Size(-1)


def test_total():
    assert total([Size(1), Size(2)]) == Size(3)


def test_negative_raises():
    with pytest.raises(ValueError, match="negative"):
        Size(-5)
"""
INIT = "from smallkit.slugs import slug, truncate, words\nfrom smallkit.units import Size, total\n"
OLD_TEST = 'from smallkit import slug\n\n\ndef test_slug_is_lower():\n    assert slug("ABC") == "abc"\n'
CONFIGURATION = (
    '[project]\nname = "smallkit"\nversion = "1"\n\n[tool.pytest.ini_options]\naddopts = "--strict-markers"\n'
)

BASE = {
    "pyproject.toml": CONFIGURATION.encode(),
    "README.md": b"smallkit\n",
    "smallkit/__init__.py": INIT.encode(),
    "smallkit/slugs.py": SLUG.encode(),
    "smallkit/units.py": UNITS.encode(),
    "tests/test_slugs.py": OLD_TEST.encode(),
}
HIDDEN = {
    "tests/test_slugs.py": TEST_SLUG.encode(),
    "tests/test_truncate.py": TEST_TRUNCATE.encode(),
    "tests/test_units.py": TEST_UNITS.encode(),
}
GOLD: dict[str, bytes | None] = {"smallkit/slugs.py": FIXED_SLUG.encode()}
F2P = (
    "tests/test_truncate.py::test_truncated_slug_has_no_separator",
    "tests/test_truncate.py::test_truncate_keeps_words",
)
P2P = (
    "tests/test_slugs.py::test_slug_is_lower",
    *(
        f"tests/test_slugs.py::test_cases[{case}]"
        for case in ("Hello World-hello-world", "a  b-a-b", "\\xc9t\\xe9-ete")
    ),
    "tests/test_slugs.py::TestWords::test_words",
    "tests/test_slugs.py::TestWords::test_no_words",
    "tests/test_units.py::UnitsTest::test_text",
    "tests/test_units.py::UnitsTest::test_small",
    "tests/test_units.py::UnitsTest::test_negative",
    "tests/test_units.py::test_total",
    "tests/test_units.py::test_negative_raises",
)
PATCH = """--- a/smallkit/slugs.py
+++ b/smallkit/slugs.py
@@ -17,7 +17,7 @@
     \"\"\"Returns a name of at most this length, which does not end with a separator.\"\"\"
     if max_length <= 0 or len(name) <= max_length:
         return name
-    return name[:max_length]
+    return name[:max_length].rstrip(separator)


 def words(name, separator="-"):
"""


def make_store(folder: Path) -> tuple[TaskStore, RepoTask]:
    """Writes the task into a store."""
    store = TaskStore(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sites").symlink_to(Path(_folder_with_pytest().name, "sites"))
    task = RepoTask(
        instance_id="smallkit-1",
        repo="local/smallkit",
        problem_statement="A truncated name must not end with a separator.",
        patch=PATCH,
        fail_to_pass=F2P,
        pass_to_pass=P2P,
        base_commit=store.add_tree(BASE),
        tests=store.add_tests(HIDDEN),
        site="pytest",
    )
    store.write([task])
    return store, task


@functools.cache
def _folder_with_pytest() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    add_pytest(TaskStore(Path(folder.name)))
    return folder
