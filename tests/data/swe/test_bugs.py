"""Mutations and parts of fixes: they parse, change one place, and can be combined."""

from __future__ import annotations

import ast
import difflib
import textwrap
from pathlib import Path

import pytest

from verl_agentic.swe.bugs.break_trees import combined
from verl_agentic.swe.bugs.hunks import hunk_bugs
from verl_agentic.swe.bugs.mutations import OPERATORS, choose_bugs, mutate, mutation_sites
from verl_agentic.swe.test_functions import without_tests

_EACH = {
    "comparison": ("return a < b", "return a <= b"),
    "arithmetic": ("return a + b", "return a - b"),
    "and/or": ("return a and b", "return a or b"),
    "off by one": ("return a[1]", "return a[2]"),
    "boolean": ("return g(x=True)", "return g(x=False)"),
    "not removed": ("return not a", "return (a)"),
    "operand of condition dropped": ("return a and b", "return (b)"),
    "condition negated": ("return 1.5 if a else b", "return 1.5 if not (a) else b"),
    "arguments swapped": ("return g('é', b)", "return g(b, 'é')"),
    "keyword argument removed": ("return g(a, key=b)", "return g(a)"),
    "assignment removed": ("a += b", "pass"),
    "call removed": ("a.clear()", "pass"),
    "slice shifted": ("return a[b:]", "return a[b + 1:]"),
    "loop exit": ("while a: break", "while a: pass"),
    "default changed": ("return a.get(b, [])", "return a.get(b, None)"),
    "return None": ("return a", "return None"),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_changes_the_bytes_of_one_node(operator: str) -> None:
    before, after = (f"def f(a, b):\n    {line}  # é\n" for line in _EACH[operator])
    sites = [site for site in mutation_sites("m.py", before) if site.operator == operator]
    texts = {bug.broken for site in sites if (bug := mutate(site, before))}
    assert after in texts


@pytest.mark.slow
def test_all_mutations_of_a_source_compile_and_differ_in_few_lines() -> None:
    source = Path(textwrap.__file__).read_text(encoding="utf-8")
    bugs = choose_bugs({"textwrap.py": source}, count=20, seed=1)
    assert len({bug.broken for bug in bugs}) == 20
    for bug in bugs:
        assert ast.dump(ast.parse(bug.broken)) != ast.dump(ast.parse(source)) and bug.unit
        old, new = source.splitlines(), bug.broken.splitlines()
        assert 0 < sum(line[0] in "+-" for line in list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]) <= 12
    assert bugs == choose_bugs({"textwrap.py": source}, count=20, seed=1)
    assert bugs != choose_bugs({"textwrap.py": source}, count=20, seed=2)


_OLD = "LIMIT = 1\n\ndef f(a):\n    return a\n\n\nclass C:\n    def g(self):\n        return 1\n\n__version__ = '1'\n"
_NEW = "LIMIT = 2\n\ndef f(a):\n    '''Doc.'''\n    return a + 1\n\n\nclass C:\n    def g(self):\n        return 2\n"
_NEW += "\n__version__ = '2'\n"


def test_a_fix_is_taken_back_one_function_at_a_time() -> None:
    bugs = {bug.name: bug for bug in hunk_bugs("m.py", _OLD, _NEW)}
    assert set(bugs) == {"line 1", "f", "C.g"}
    assert "return 1" in bugs["C.g"].broken and "return a + 1" in bugs["C.g"].broken
    assert (bugs["C.g"].unit, bugs["line 1"].unit) == ("C.g", "")
    assert all("__version__ = '2'" in bug.broken for bug in bugs.values())


def test_a_function_with_two_changes_gives_both_and_each() -> None:
    new = "def f(a):\n    a += 1\n    b = g(a)\n    return a + b\n"
    bugs = {bug.name: bug for bug in hunk_bugs("m.py", new.replace("+= 1", "+= 2").replace("a + b", "a"), new)}
    assert set(bugs) == {"f", "f, change 1", "f, change 2"}
    assert {bug.unit for bug in bugs.values()} == {"f"}
    assert "+= 1" in bugs["f, change 2"].broken and "return a\n" in bugs["f, change 2"].broken


def test_a_change_of_comments_and_docstrings_alone_is_no_bug() -> None:
    assert not list(hunk_bugs("m.py", "def f():\n    return 1\n", "def f():\n    '''Doc.'''\n    return 1  # one\n"))


def test_two_bugs_combine_if_they_touch_different_lines() -> None:
    bugs = {bug.name: bug.broken for bug in hunk_bugs("m.py", _OLD, _NEW)}
    both = combined(_NEW, bugs["f"], bugs["C.g"])
    assert both is not None and "return 1" in both and "return a\n" in both and "LIMIT = 2" in both
    assert combined(_NEW, bugs["f"], bugs["f"]) is None


def test_visible_tests_lose_the_failing_functions_only() -> None:
    source = b"@mark\ndef test_a():\n    pass\n\n\n"
    source += b"def test_b():\n    pass\n\n\nclass T:\n    def test_c(self):\n        pass\n"
    tree = {"t.py": source, "u.py": b"x = 1\n"}
    left = without_tests(tree, ["t.py::test_a[1]", "t.py::T::test_c"])
    assert left["t.py"] == b"\n\ndef test_b():\n    pass\n\n\nclass T:\n    pass\n" and left["u.py"] == tree["u.py"]
    assert "t.py" not in without_tests(tree, ["t.py::made_by_a_loop"])
