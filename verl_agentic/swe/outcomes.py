"""Comparison of test runs: which tests a change fixes, which it keeps, and which are flaky."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_agentic.swe.grading.run_tests import TestRun


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Tests by what a change does to them."""

    f2p: tuple[str, ...]
    """Tests that pass after the change only."""
    p2p: tuple[str, ...]
    """Tests that pass before and after it."""
    flaky: tuple[str, ...]
    """Tests that differ between runs of the same tree; they belong to no other list."""
    uncollected: tuple[str, ...]
    """Tests of `f2p` whose file could not be imported before the change."""


def compare(before: Sequence[TestRun], after: Sequence[TestRun]) -> Comparison:
    """Compares runs of the tree before a change with runs of the tree after it."""
    first, last = before[0].outcomes, after[0].outcomes
    flaky = {
        test
        for runs, tests in ((before, {*first, *last}), (after, set(last)))
        for test in tests
        if len({run.outcomes.get(test) for run in runs}) > 1
    }
    broken_files = {test for test, outcome in first.items() if outcome == "error" and "::" not in test}
    passed = [test for test, outcome in last.items() if outcome == "passed" and test not in flaky]
    f2p = tuple(sorted(test for test in passed if first.get(test) != "passed"))
    p2p = tuple(sorted(test for test in passed if first.get(test) == "passed"))
    uncollected = tuple(test for test in f2p if test.split("::")[0] in broken_files)
    return Comparison(f2p=f2p, p2p=p2p, flaky=tuple(sorted(flaky)), uncollected=uncollected)


def wrong_tests(run: TestRun, *, f2p: Sequence[str], p2p: Sequence[str], is_fixed: bool) -> Mapping[str, str]:
    """Returns test -> its outcome for each test that contradicts a task.

    Args:
        run: of the base tree, or of the tree with the reference solution.
        f2p, p2p: tests of the task.
        is_fixed: whether the tree has the reference solution.
    """
    wrong = {test: str(run.outcomes.get(test, "missing")) for test in p2p if test not in run.passed}
    if is_fixed:
        return {**wrong, **{test: str(run.outcomes.get(test, "missing")) for test in f2p if test not in run.passed}}
    return {**wrong, **{test: "passed" for test in f2p if test in run.passed}}
