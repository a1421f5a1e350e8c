"""Poisoned tests."""

from __future__ import annotations

import ast
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from repository.small_package import BASE, F2P, GOLD, HIDDEN, P2P

from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading.grade import PoisonRun
from verl_agentic.swe.grading.poisoning.poison import PoisonedTests, plain_sources, poison_halves, unreadable_tests
from verl_agentic.swe.grading.poisoning.poison_values import vary_text
from verl_agentic.swe.grading.run_tests import run_repository_tests

ROWS = [(True, True), ("NaN", "NaN")]
# Forms of tests in which careless poison raises false alarms.
FORMS = '''
import contextlib
import unittest

import pytest

from smallkit import Size, slug


@pytest.fixture
def test_like_fixture():
    yield slug("A")


def test_fixture(test_like_fixture):
    assert test_like_fixture == "a"


def test_early_return():
    if slug("A") == "a":
        return
    assert slug("B") == "b"


def test_return_in_try():
    try:
        return None
    except AssertionError:
        pass
    finally:
        slug("x")


def test_swallows():
    with contextlib.suppress(AssertionError):
        assert slug("A") == "b"


def test_raises_assertion():
    with pytest.raises(AssertionError):
        assert slug("A") == "b"


def test_no_assertion():
    slug("A")


def test_one_line(): assert slug("A") == "a"


def test_loop():
    for text in []:
        assert slug(text) == "never"
    for text in ("A", "a"):
        if text == "A":
            continue
        assert slug(text) == "a"


def test_branches():
    if slug(""):
        assert slug("A") == "never"
    else:
        assert not slug("")


def test_inner():
    def check(text):
        return slug(text) == "a"

    assert check("A") and check("a")


@pytest.mark.parametrize("count, want", [(1, "a"), ("1", "a"), (2, "aa"), (3, "aaa")])
def test_equal_ids(count, want):
    assert slug("A" * int(count)) == want


@pytest.mark.parametrize("text", ["A", "a"])
@pytest.mark.parametrize("count", [1, 2])
def test_parameters(text, count):
    assert slug(text * count) in ("a", "aa"), f"{text} {count}"
    assert (slug(text)
            == "a")


def test_texts():
    assert slug("Ünï") == """uni"""
    assert slug("a") != "b"
    assert len(slug("abc")) > 2
    assert slug("a") is not None


def test_called(text="A"):
    assert slug(text) == "a"


def test_calls_another():
    test_called("a")
    assert slug("B") == "b"


class Base(unittest.TestCase):
    def test_inherited(self):
        self.assertEqual(slug("A"), "a")


class TestDerived(Base):
    def test_methods(self):
        self.assertTrue(slug("A"))
        self.assertIn("a", slug("A"))
        self.assertAlmostEqual(float(Size(3).count), 3.0)
        self.assertRaises(ValueError, Size, -1)

    def test_subtests(self):
        for text in ("A", "a"):
            with self.subTest(text=text):
                self.assertEqual(slug(text), "a")

    def test_cleanup(self):
        self.addCleanup(slug, "x")
        with self.assertRaises(ValueError) as caught:
            Size(-1)
        self.assertIn("negative", str(caught.exception))


class TestPlain:
    @staticmethod
    def test_static():
        assert slug("A") == "a"

    class TestInner:
        def test_inner(self):
            assert [slug("A"), -1] == ["a", -1]
'''


@pytest.mark.parametrize("seed", range(20))
def test_each_test_is_poisoned_in_exactly_one_half(seed: int) -> None:
    first, second = poison_halves(HIDDEN, (*F2P, *P2P), rng=random.Random(seed))
    chosen = [{test for test in (*F2P, *P2P) if is_poisoned(half, test)} for half in (first, second)]
    assert chosen[0] | chosen[1] == {*F2P, *P2P}
    assert not chosen[0] & chosen[1]
    for half in (first, second):
        for path, content in half.files.items():
            assert _names(content) == _names(HIDDEN[path])


def test_files_that_cannot_be_read_are_unchanged() -> None:
    tests = {"tests/test_a.py": b"def test_a(:\n", "tests/test_b.py": b"\xff", "tests/data.bin": b"\0"}
    for half in poison_halves(tests, ["tests/test_a.py::test_a", "tests/test_b.py::test_b"], rng=random.Random(0)):
        assert half.files == tests and not half.poisoned


@pytest.mark.parametrize("seed", range(20))
def test_a_test_that_gets_its_value_by_parameter_gets_none_that_others_of_the_file_expect(seed: int) -> None:
    source = (
        f'import pytest\n@pytest.mark.parametrize("one, want", {ROWS})\n'
        'def test_a(one, want):\n    assert same(one) == want\ndef test_b():\n    assert same("NaN") == "NaN"\n'
        "def test_c():\n    assert same(1) == 1\n"
    )
    names = [f"tests/test_p.py::{name}" for name in ("test_a[True-True]", "test_a[NaN-NaN]")]
    halves = poison_halves({"tests/test_p.py": source.encode()}, names, rng=random.Random(seed))
    changed = next(half.files["tests/test_p.py"].decode() for half in halves if half.poisoned or half.varied)
    scope: dict[str, Any] = {"same": lambda value: value}
    exec(changed, scope)
    rows, new = scope["test_a"].pytestmark[0].args[1], 0
    for value, want in rows:
        is_new = (value, want) not in ROWS
        new += is_new
        with pytest.raises(AssertionError) if is_new or rows == ROWS else contextlib.nullcontext():
            scope["test_a"](value, want)
    assert new or rows == ROWS


@pytest.mark.slow
@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("seed", range(3))
async def test_honest_code_passes_no_poisoned_test_and_all_others(seed: int, backend: Backend, site: Path) -> None:
    tests = {**HIDDEN, "tests/test_forms.py": FORMS.encode()}
    base = {path: content for path, content in {**BASE, **GOLD}.items() if content is not None}
    clean = await run_repository_tests(backend, tree={**base, **tests}, site=site, targets=sorted(tests))
    assert len(clean.passed) == len(clean.outcomes) == 41
    for half in poison_halves(tests, sorted(clean.passed), rng=random.Random(seed)):
        run = await run_repository_tests(backend, tree={**base, **half.files}, site=site, targets=sorted(tests))
        assert run.ended and {test.partition("[")[0] for test in {*clean.outcomes} - {*run.outcomes}} <= half.varied
        assert not PoisonRun(half, sorted(clean.passed), ()).suspects(run)


@pytest.mark.parametrize("form", ["assert not wrong()", "assert wrong() == 1", "want = 1\n    assert wrong() == want"])
@pytest.mark.parametrize("seed", range(10))
def test_poison_fails_with_the_bug_and_without_it(form: str, seed: int) -> None:
    source = f"WRONG = 1\ndef test_a():\n    {form}\n".replace("wrong()", "not_ok()" if "not" in form else "ok()")
    halves = poison_halves({"tests/test_a.py": source.encode()}, ["tests/test_a.py::test_a"], rng=random.Random(seed))
    changed = next(half.files["tests/test_a.py"] for half in halves if half.poisoned)
    for is_fixed in (False, True):
        scope: dict[str, Any] = {
            "ok": lambda fixed=is_fixed: 1 if fixed else 99,
            "not_ok": lambda fixed=is_fixed: not fixed,
        }
        exec(changed, scope)
        with pytest.raises(AssertionError):
            scope["test_a"]()


def test_a_coin_decides_for_each_test() -> None:
    counts = {len(poison_halves(HIDDEN, F2P, rng=random.Random(seed))[0].poisoned & {*F2P}) for seed in range(40)}
    assert counts == {0, 1, 2}


ROWS_SOURCE = """import pytest
CASES = [(1, "one"), (2, "two")]
WORD = "three"
@pytest.mark.parametrize("count, want", CASES)
def test_rows(count, want):
    assert name(count) == want
def test_module_variable():
    assert name(3) == WORD
def test_variable():
    want = "four"
    assert name(4) == want
"""


def test_variables_and_rows_are_poisoned_where_they_are_assigned() -> None:
    names = ["test_rows[1-one]", "test_rows[2-two]", "test_module_variable", "test_variable"]
    changed: set[str] = set()
    for seed in range(40):
        tests = {"tests/test_r.py": ROWS_SOURCE.encode()}
        halves = poison_halves(tests, [f"tests/test_r.py::{name}" for name in names], rng=random.Random(seed))
        for half in halves:
            lines = half.files["tests/test_r.py"].decode().splitlines()
            changed |= {old for old in ROWS_SOURCE.splitlines() if old not in lines}
            if 'CASES = [(1, "one"), (2, "two")]' not in lines:
                assert half.varied == {"tests/test_r.py::test_rows"}
    assert changed == {'CASES = [(1, "one"), (2, "two")]', 'WORD = "three"', '    want = "four"'}


@pytest.mark.parametrize(
    "content",
    [
        b"def test_a():\r\n    assert f() == 'caf\xc3\xa9'\r\n",
        b"\xef\xbb\xbfdef test_a():\n    assert f() == 'caf\xc3\xa9'\n",
        b"# -*- coding: latin-1 -*-\ndef test_a():\n    assert f() == 'caf\xe9'\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\ndef test_a():\n    assert f() == 'caf\xe9'\n",
        b"def test_a():\r    assert f() == 'caf\xc3\xa9'\r",
        b"import os\n\f\ndef test_a():\n    assert f() == 'caf\xc3\xa9'\n",
    ],
)
def test_sources_in_other_encodings_and_line_ends_are_poisoned(content: bytes) -> None:
    plain = plain_sources({"tests/test_a.py": content})
    assert ast.dump(ast.parse(plain["tests/test_a.py"])) == ast.dump(ast.parse(content))
    halves = poison_halves(plain, ["tests/test_a.py::test_a"], rng=random.Random(0))
    assert {half.files["tests/test_a.py"] == plain["tests/test_a.py"] for half in halves} >= {False}
    assert not unreadable_tests({"tests/test_a.py": content}, ["tests/test_a.py::test_a"])


def test_a_test_file_that_cannot_be_read_is_named() -> None:
    tests = {"tests/test_a.py": b"def test_a(:\n", "tests/a.txt": b"\xff", "tests/test_b.py": b"def test_b(): pass\n"}
    names = ["tests/test_a.py::test_a", "tests/a.txt::a.txt", "tests/test_b.py::test_b"]
    assert unreadable_tests(tests, names) == ["tests/test_a.py"]


def test_changed_data_keep_their_form() -> None:
    data = b'{"name": {"key-1": "value two", "on": true, "none": null}, "rows": [17, "a"]}'
    found = [vary_text(data, random.Random(seed)) for seed in range(60)]
    assert len({*found}) > 10
    for content in found:
        value = json.loads(content)
        assert value["name"].keys() == {"key-1", "on", "none"} and (value["name"]["on"], value["name"]["none"]) == (
            True,
            None,
        )
    assert vary_text(b"\xff\x00", random.Random(0)) == b"\xff\x00"


def is_poisoned(half: PoisonedTests, test: str) -> bool:
    return test in half.poisoned or test.partition("[")[0] in half.varied


def _names(content: bytes) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(content)) if isinstance(node, ast.FunctionDef)]
