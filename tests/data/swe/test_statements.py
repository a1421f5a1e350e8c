"""Statements have the behaviour and no noise; unfair tasks are flagged."""

from __future__ import annotations

from releases_of_kit import RELEASES

from verl_agentic.swe.outcomes import Comparison
from verl_agentic.swe.releases.changelog import changelog_items, items_of, relevant_items
from verl_agentic.swe.releases.file_kinds import kind_of, source_changes
from verl_agentic.swe.releases.statements import failing_example, unfair

_CHANGELOG = """
Version 2.1.0
-------------

Released 2024-01-01

-   Fix ``unsign`` with a date
    that overflows. :issue:`296`
-   Drop support for Python 3.7.
-   Use :func:`json.loads` for payloads
* 1.22.4 Account for groups (thanks @simple)
  Reject out-of-range minutes (thanks @other)
"""


def _comparison(*tests: str, uncollected: tuple[str, ...] = ()) -> Comparison:
    return Comparison(f2p=tests, p2p=(), flaky=(), uncollected=uncollected)


def test_items_lose_headings_links_credits_and_versions() -> None:
    assert items_of(_CHANGELOG.splitlines()) == [
        "Fix ``unsign`` with a date that overflows",
        "Drop support for Python 3.7",
        "Use `json.loads` for payloads",
        "Account for groups",
        "Reject out-of-range minutes",
    ]


def test_packaging_items_are_dropped_and_related_ones_come_alone() -> None:
    items = items_of(_CHANGELOG.splitlines())
    assert relevant_items(items, words={"unsign"}) == ["Fix ``unsign`` with a date that overflows"]
    assert "Drop support for Python 3.7" not in relevant_items(items, words={"nothing"})


def test_only_added_lines_of_a_changelog_count() -> None:
    old, new = ({path: text.encode() for path, text in RELEASES[one].items()} for one in ("1.0", "1.1"))
    assert len(changelog_items(old, new)) == 2
    assert changelog_items(new, new) == []


def test_an_example_has_the_code_of_the_shortest_test_and_its_failure() -> None:
    files = {
        "t.py": b'def test_long():\n    a = 1\n    assert a\n\n\ndef test_short(x):\n    """Doc."""\n    assert f(x)\n'
    }
    text = failing_example(["t.py::test_long", "t.py::test_short[3]"], files, {"t.py::test_short[3]": "assert None"})
    assert "assert f(x)" in text and "parameters `3`" in text and "assert None" in text and "Doc" not in text
    assert "a = 1" not in text


def test_unfair_tasks_are_flagged() -> None:
    tests = {"t.py": b"def test_a():\n    with raises(E, match='must be in 0..59'):\n        parse(1, strict=True)\n"}
    old = {"m.py": "def parse(x):\n    return x\n"}
    new = {"m.py": "def parse(x, strict=False):\n    raise E('minute must be in 0..59')\n"}
    one = _comparison("t.py::test_a")
    assert set(unfair(one, "Fix parse", old=old, new=new, tests=tests)) == {"exact_message", "new_name"}
    said = "With strict, parse raises 'minute must be in 0..59'."
    assert unfair(one, said, old=old, new=new, tests=tests) == {}
    imports = _comparison("t.py::test_a", uncollected=("t.py::test_a",))
    assert set(unfair(imports, said, old=old, new=new, tests=tests)) == {"import_only"}


def test_files_have_kinds_and_version_lines_are_no_source_change() -> None:
    kinds = {
        "src/a/b.py": "source", "tests/data/x.json": "test", "test.py": "test", "a/conftest.py": "test",
        "setup.py": "config", "docs/conf.py": "other", "CHANGES.rst": "docs", "a.egg-info/PKG-INFO": "other",
    }  # fmt: skip
    assert {path: kind_of(path) for path in kinds} == kinds
    old = {"a.py": b"__version__ = '1'\nx = 1\n", "b.py": b"x = 1\n"}
    new = {"a.py": b"__version__ = '2'\nx = 1\n", "b.py": b"x = 2\n"}
    assert source_changes(old, new) == {"b.py": ("x = 1\n", "x = 2\n")}


def test_a_version_beside_a_change_is_that_of_the_new_release() -> None:
    old = {"a.py": b"__version__ = '1'\nVERSION = (1,\n0)\nx = 1\n"}
    new = {"a.py": b"__version__ = '2'\nVERSION = (2, 0)\nx = 2\n"}
    before, after = source_changes(old, new)["a.py"]
    assert before == "__version__ = '2'\nVERSION = (1,\n0)\nx = 1\n"  # half an assignment is not replaced
    assert after == new["a.py"].decode()
