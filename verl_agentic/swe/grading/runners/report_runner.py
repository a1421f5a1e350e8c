"""Interface of a test runner whose report is read: its command, its report, and how its tests are written."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

TestOutcome = Literal["passed", "failed", "skipped", "xfailed", "xpassed", "error", "conflict"]


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The report about one target."""

    outcomes: Mapping[str, TestOutcome] = field(default_factory=dict)
    """Name of a test within the target -> its outcome. Empty if the report lacks its end."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Name of a test -> message of its failure."""


@dataclass(frozen=True, kw_only=True)
class TestForm:
    """Patterns that find tests in the source of a language."""

    __test__ = False  # pytest would collect it because of its name

    files: re.Pattern[str]
    """Matches names of files with tests."""
    head: re.Pattern[str]
    """Matches the begin of a test; the group `name` is its name."""
    body: re.Pattern[str]
    """Matches up to the brace that opens the body of a test."""
    check: re.Pattern[str]
    """Matches a line with an expected value."""
    failure: str
    """Statement that fails a test, with `{text}` and the groups of `head`."""
    quotes: str = '"'
    """Characters that begin a text."""
    nested: str = ""
    """Separates the name of a test from that of a test inside of it, if a test ends as those inside of it do."""
    rows: str = ""
    """Separates the name of a test from that of a row of its data."""


@dataclass(frozen=True, kw_only=True)
class ReportRunner:
    """A test runner. The id of a test is its target, `::` and its name."""

    name: str
    language: str
    toolchain: Sequence[str]
    """Command on this machine that prints the folder whose `bin` has the programs."""
    make_command: Callable[[str], Sequence[str]]
    """Returns the command that runs the tests of a target, in the folder of the repository."""
    read: Callable[[str], RunReport]
    """Reads the standard output of this command."""
    form: TestForm
    env: Mapping[str, str] = field(default_factory=dict)
    by_folder: bool = False
    """True: a target is a folder; False: a file."""

    def target_of(self, path: str) -> str:
        """Returns the target of a file of tests."""
        return (posixpath.dirname(path) or ".") if self.by_folder else path


def merge_outcome(outcomes: dict[str, TestOutcome], test: str, outcome: TestOutcome) -> None:
    """Adds an outcome; two outcomes of one test are a conflict."""
    outcomes[test] = "conflict" if test in outcomes else outcome
