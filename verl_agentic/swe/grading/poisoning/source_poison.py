"""Makes variants of tests in other languages than Python that no honest code can pass, without a parser.

A poisoned test gets other values in a line that compares, or else in any line, or a statement that fails at its begin.
A change that an honest solution passes is possible, because nothing here understands the source: `grade` compares with
the reference solution, and such a change then proves nothing.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from verl_agentic.swe.grading.poisoning.poison import PoisonedTests
from verl_agentic.swe.grading.runners.report_runner import ReportRunner, TestForm

_VALUES = 0.6
"""Share of poison in expected values, where there are any."""
_WORDS = ("unexpected", "wrong", "different", "missing", "bad")


@dataclass(frozen=True, order=True)
class _Unit:
    """The place of a test: its file, and where its head ends and the next one begins."""

    path: str
    start: int
    end: int


def judged_tests(runner: ReportRunner, names: Collection[str]) -> list[str]:
    """Returns the tests that poison is about: not those that end as tests inside of them, and no rows of a test."""
    form, ids = runner.form, set(names)

    def is_judged(test: str) -> bool:
        target, _, name = test.partition("::")
        is_row = bool(form.rows) and form.rows in name and f"{target}::{name.partition(form.rows)[0]}" in ids
        return not is_row and not (form.nested and any(other.startswith(f"{test}{form.nested}") for other in ids))

    return [test for test in names if is_judged(test)]


def unfound_tests(runner: ReportRunner, tests: Mapping[str, bytes], names: Collection[str]) -> list[str]:
    """Returns the tests whose source is not found, or has nothing to change: their results cannot be protected."""
    judged = judged_tests(runner, names)
    units = _find_units(runner, tests, judged)

    def is_changed(unit: _Unit) -> bool:
        source = tests[unit.path].decode("utf-8", "replace")
        return _poison_unit(runner.form, source, unit, random.Random(0)) is not None

    return [test for test in judged if test not in units or not is_changed(units[test])]


def poison_sources(
    runner: ReportRunner, tests: Mapping[str, bytes], names: Collection[str], *, rng: random.Random
) -> tuple[PoisonedTests, PoisonedTests]:
    """Returns two variants of test files. Each test is poisoned in one of them, which a coin decides for each test.

    Args:
        runner: of the tests.
        tests: path -> content of the hidden tests.
        names: ids of tests, as `judged_tests` returns them.
    """
    units = _find_units(runner, tests, names)
    first = {test for test in sorted(units) if rng.random() < 0.5}
    halves = (first, units.keys() - first)
    first_half, second_half = (_poison_half(runner.form, tests, units, half, rng) for half in halves)
    return first_half, second_half


def _find_units(runner: ReportRunner, tests: Mapping[str, bytes], names: Collection[str]) -> dict[str, _Unit]:
    """Returns test -> its place, for tests whose name one head in the files of their target has."""
    form = runner.form
    places: dict[tuple[str, str], list[_Unit]] = {}
    for path in filter(form.files.fullmatch, tests):
        source = tests[path].decode("utf-8", "replace")
        heads = list(form.head.finditer(source))
        ends = [*(head.start() for head in heads[1:]), len(source)]
        for head, end in zip(heads, ends, strict=True):
            name = re.sub(r"\\(.)", r"\1", head["name"])
            places.setdefault((runner.target_of(path), name), []).append(_Unit(path, head.start(), end))
    units = {}
    for test in names:
        target, _, name = test.partition("::")
        last = name.rpartition(form.nested or "::")[2]
        if len(found := places.get((target, name)) or places.get((target, last), [])) == 1:
            units[test] = found[0]
    return units


def _poison_half(
    form: TestForm, tests: Mapping[str, bytes], units: Mapping[str, _Unit], half: Collection[str], rng: random.Random
) -> PoisonedTests:
    files = dict(tests)
    poisoned = set()
    for test in sorted(half, key=lambda test: units[test], reverse=True):  # later edits move no earlier place
        unit = units[test]
        source = files[unit.path].decode("utf-8", "replace")
        if (changed := _poison_unit(form, source, unit, rng)) is not None:
            files[unit.path] = changed.encode()
            poisoned.add(test)
    return PoisonedTests(files=files, poisoned=frozenset(poisoned))


def _poison_unit(form: TestForm, source: str, unit: _Unit, rng: random.Random) -> str | None:
    """Returns the source with one poisoned test; None if the test has neither a body nor an expected value."""
    head = form.head.match(source, unit.start)
    assert head is not None
    literal = re.compile(rf"([{form.quotes}])(?:\\.|(?!\1)[^\\\n])*\1|(?<![\w.])\d+(?![\w.])")
    lines = [match.span() for match in form.check.finditer(source, head.end(), unit.end)]
    if not any(literal.search(source, *line) for line in lines):  # a helper, which may be changed, compares
        lines = [match.span() for match in re.compile(r"[^\n]+").finditer(source, head.end(), unit.end)]
    lines = [line for line in lines if literal.search(source, *line)]
    body = form.body.search(source, head.end(), unit.end)
    if lines and (body is None or rng.random() < _VALUES):
        # All values of the line: with another argument alone, right solutions may differ from the reference.
        start, end = rng.choice(lines)
        line = literal.sub(lambda value: _change_literal(value[0], rng), source[start:end])
        return f"{source[:start]}{line}{source[end:]}"
    if body is None:
        return None
    text = json.dumps(f"{rng.choice(_WORDS)} value {rng.randrange(10**6)}")
    statement = form.failure.format(**{**head.groupdict(), "text": text})
    return f"{source[: body.end()]} {statement}{source[body.end() :]}"


def _change_literal(literal: str, rng: random.Random) -> str:
    """Returns another number with as many digits, or a text with one more letter."""
    if literal.isdecimal():
        digits = [digit for digit in "123456789" if digit != literal[0]]
        return rng.choice(digits) + literal[1:]
    letter = rng.choice("bcdfghjklmpqrstvwxz")
    return f"{literal[0]}{letter}{literal[1:]}" if rng.random() < 0.5 else f"{literal[:-1]}{letter}{literal[-1]}"
