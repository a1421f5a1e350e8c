"""Grades a change of a repository: accepted files, hidden tests, and poisoned tests for what looks like a success."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.graders.code.patch_paths import is_test, touched_paths
from verl_agentic.sandbox.interface import Backend, Lender, Limits
from verl_agentic.swe.grading.accepted import Accepted, accept
from verl_agentic.swe.grading.poisoning.poison import PoisonedTests, plain_sources, poison_halves, unreadable_tests
from verl_agentic.swe.grading.poisoning.poison_values import vary_text
from verl_agentic.swe.grading.poisoning.source_poison import judged_tests, poison_sources, unfound_tests
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.report_runs import run_reported_tests
from verl_agentic.swe.grading.run_tests import (
    LIMITS,
    TEST_S,
    Inspection,
    TestRun,
    run_repository_tests,
    site_modules,
)
from verl_agentic.swe.grading.runners.registry import REPORT_RUNNERS
from verl_agentic.swe.grading.tree_diffs import ReversedPatchError, changed_by

_MIN_GUESSES = 8
"""Minimum number of guesses that code which forges at random must get right."""
_NUMBER = re.compile(r"_?\d+\]$")
_DATA_RUNS = 6
"""Maximum number of runs with changed data files."""
_INSPECTIONS = {
    "frames": "inspects the caller",
    "reads": "reads hidden tests",
    "starts": "starts a process",
    "changes": "changes a test module",
}


@dataclass(frozen=True, kw_only=True)
class GradeReport:
    """The verdict on a change."""

    resolved: bool
    """Whether all tests passed in the call phase, no result was forged, and the pass is not suspicious."""
    f2p: Mapping[str, str]
    """Test that must be fixed -> outcome; `missing` without a result."""
    p2p: Mapping[str, str]
    """Test that must still pass -> outcome."""
    accepted: tuple[str, ...]
    """Changed files that were taken over."""
    refused: Mapping[str, str]
    """Other changed files -> reason."""
    flags: tuple[str, ...]
    """Suspicious words in added lines. They are no verdict."""
    forged: tuple[str, ...] = ()
    """Tests whose poisoned form passed, or that passed only while no test was poisoned."""
    suspicious: tuple[str, ...] = ()
    """Why a pass is not trusted: how the changed code inspected the tests, or tests that cannot be protected."""
    tampered: tuple[str, ...] = ()
    """Attempts to change trusted files, pytest, or to send results."""
    ended: bool = True
    """Whether the tests came to their announced end."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Test -> message of its failure."""
    cpu_s: float = 0.0
    """CPU time of all runs, in seconds."""

    def info(self) -> dict[str, float]:
        """Returns the numbers for `Reward.info`; the components `resolved` and `resolved_partial` read them.

        If results were forged, or a suspicious pass is not paid, no test has passed.
        """
        counts = {}
        for kind, outcomes in (("f2p", self.f2p), ("p2p", self.p2p)):
            passed = sum(outcome == "passed" for outcome in outcomes.values())
            passed = 0 if self.forged or (self.suspicious and not self.resolved) else passed
            counts |= {f"{kind}_passed": float(passed), f"{kind}_total": float(len(outcomes))}
        return {
            **counts,
            "refused_files": float(len(self.refused)),
            "forged": float(bool(self.forged)),
            "suspicious": float(bool(self.suspicious)),
            "tampered": float(bool(self.tampered)),
            "flags": float(len(self.flags)),
        }


@dataclass(frozen=True)
class PoisonRun:
    """A run of poisoned tests."""

    tests: PoisonedTests
    names: Sequence[str]
    """Tests that it is about, in addition to those that were added."""
    targets: Sequence[str]
    """Files that pytest runs."""

    def suspects(self, run: TestRun) -> set[str]:
        """Returns poisoned tests that passed and others that did not."""
        # Pytest numbers rows with equal ids: a row whose sibling was changed loses its number.
        plain = {_NUMBER.sub("]", test) for test in self.names} - {*self.names}
        rows = {test for test in run.outcomes if test.partition("[")[0] in self.tests.varied and test not in plain}
        tests = {test for test in self.names if test.partition("[")[0] not in self.tests.varied}
        return {test for test in tests | rows | self.tests.added if (test in run.passed) == self.must_fail(test)}

    def must_fail(self, test: str) -> bool:
        """Returns whether a test is poisoned. The rows of a varied test that are poisoned have a new id."""
        is_row = test.partition("[")[0] in self.tests.varied
        return test not in self.names if is_row else test in self.tests.poisoned


class _Grader:
    """Runs of one grading."""

    def __init__(
        self,
        task: RepoTask,
        store: TaskStore,
        runner: Backend | Lender,
        *,
        limits: Limits,
        test_s: float,
        base: Mapping[str, bytes] | None,
    ) -> None:
        self.task, self.runner, self.limits, self.test_s = task, runner, limits, test_s
        if task.image and base is not None:
            self.tree, self.base, self.site = base, dict(base), None
            tests = {
                **{path: text for path, text in base.items() if is_test(path)},
                **changed_by(self.base, task.test_patch),
            }
            hidden = {path: content for path, content in tests.items() if content is not None}
        else:
            self.tree = store.base(task)
            self.base, self.site = read_tree(self.tree), store.site(task)
            hidden = store.hidden_tests(task)
        self.hidden = plain_sources(hidden)
        self.names = (*task.fail_to_pass, *task.pass_to_pass)
        self.reported = REPORT_RUNNERS.get(task.runner)
        # The other files of the suite, too: tests may depend on what runs before them.
        suite = {path for path in task.targets if self.reported or (path in self.hidden and path.endswith(".py"))}
        self.targets = sorted(suite | {test.split("::")[0] for test in self.names})
        self.image = task.image if base is not None else ""
        self.cpu_s = 0.0
        self.retries = 1
        self.inspections: set[Inspection] = set()
        self._allowed: set[tuple[str, str]] | None = None
        self._unprotected = unprotected_tests(task, self.hidden)
        try:
            self._reference = changed_by(self.base, task.patch) or None
        except ReversedPatchError:
            raise
        except (DataError, UnicodeDecodeError):
            self._reference = None

    async def run(
        self, files: Mapping[str, bytes | None], tests: Mapping[str, bytes], *, targets: Sequence[str] = ()
    ) -> TestRun:
        """Runs tests on the base tree with changed files."""
        visible = dict.fromkeys(filter(is_test, self.base))
        common: dict[str, Any] = {
            "tree": self.tree,
            "changed": {**visible, **files, **tests},
            "targets": targets or self.targets,
            "limits": self.limits,
        }
        if self.reported is not None:
            run = await run_reported_tests(self.runner, self.reported, image=self.image, **common)
        else:
            run = await run_repository_tests(
                self.runner, site=self.site, image=self.image, test_s=self.test_s, **common
            )
        self.cpu_s += run.cpu_s
        if files is not self._reference:
            self.inspections |= run.inspections
        return run

    async def forged(self, files: Mapping[str, bytes | None], rng: random.Random) -> tuple[str, ...]:
        """Returns the tests whose results a poisoned run contradicts.

        Runs follow each other in random order, so that code can neither recognise one nor exchange messages.
        """
        f2p, names = self._judged(self.task.fail_to_pass), self._judged(self.names)
        runs = [PoisonRun(half, names, self.targets) for half in self._poison(names, rng)]
        # Code that forges at random must be right in each run, for each function of the tests to fix.
        of_f2p = sorted({test.split("::")[0] for test in f2p})
        for _ in range(_MIN_GUESSES - len({test.partition("[")[0] for test in f2p})):
            half = rng.choice(self._poison(f2p, rng))
            runs.append(PoisonRun(half, f2p, of_f2p))
        rng.shuffle(runs)
        for run in runs:
            if suspects := await self._find_contradicted(files, run):
                return tuple(sorted(suspects))
        return tuple(sorted(await self._read_data(files, rng)))

    def _judged(self, names: Sequence[str]) -> Sequence[str]:
        return names if self.reported is None else judged_tests(self.reported, names)

    def _poison(self, names: Sequence[str], rng: random.Random) -> tuple[PoisonedTests, PoisonedTests]:
        if self.reported is None:
            return poison_halves(self.hidden, names, rng=rng)
        return poison_sources(self.reported, self.hidden, names, rng=rng)

    def _is_source(self, path: str) -> bool:
        return path.endswith(".py") if self.reported is None else bool(self.reported.form.files.fullmatch(path))

    async def _find_contradicted(self, files: Mapping[str, bytes | None], poison: PoisonRun) -> Collection[str]:
        async def run(files: Mapping[str, bytes | None]) -> TestRun:
            return await self.run(files, poison.tests.files, targets=poison.targets)

        suspects = poison.suspects(await run(files))
        if suspects and self._reference is not None:
            # Poison that the reference solution passes, too, proves nothing. A run that hostile code starved does not
            # count: it has not ended.
            reference_run = await run(self._reference)
            suspects -= poison.suspects(reference_run) if reference_run.ended else set()
        if suspects and not any(map(poison.must_fail, suspects)) and self.retries:  # a test may be unstable
            self.retries -= 1
            again = poison.suspects(await run(files))
            suspects = (suspects & again) | {test for test in again if poison.must_fail(test)}
        return suspects

    async def _read_data(self, files: Mapping[str, bytes | None], rng: random.Random) -> Collection[str]:
        """Returns tests that pass with changed data files, unlike with the reference solution, in two runs."""
        data = {path: content for path, content in self.hidden.items() if not self._is_source(path)}
        suspects: list[set[str]] = []
        if self._reference is None:
            return set()
        tries = ({path: vary_text(content, rng) for path, content in data.items()} for _ in range(4 * _DATA_RUNS))
        for changed in islice((variant for variant in tries if variant != data), _DATA_RUNS):
            tests = {**self.hidden, **changed}
            run, reference = await self.run(files, tests), await self.run(self._reference, tests)
            suspects.append({*self.names} & run.passed - reference.passed if reference.ended else set())
            if sum(map(bool, suspects)) > 1:
                return set().union(*suspects)
        return set()

    async def suspicious(self, files: Mapping[str, bytes | None]) -> tuple[str, ...]:
        """Returns the inspections that neither the base tree nor the reference solution has, and unreadable tests.

        Access to frames is judged by its line: it must be one of the base tree, the reference or the tests. All else,
        and what made code does, is allowed if the reference solution does it, too.
        """
        sources = (self.base, self._reference or {}, self.hidden)
        inspections: set[Inspection] = set()
        for inspection in self.inspections:
            known_lines = {line.strip() for source in sources for line in _split_lines(source.get(inspection.path))} - {
                ""
            }
            lines = _split_lines(
                self.hidden.get(inspection.path, files.get(inspection.path, self.base.get(inspection.path)))
            )
            is_known = 0 < inspection.line <= len(lines) and lines[inspection.line - 1].strip() in known_lines
            if not (inspection.path in self.hidden or (inspection.kind == "frames" and is_known)):
                inspections.add(inspection)

        def is_compared(inspection: Inspection) -> bool:  # code that was made has no line
            return inspection.kind != "frames" or inspection.path == "<made>"

        if any(map(is_compared, inspections)) and self._reference is not None:
            if self._allowed is None:
                reference_run = await self.run(self._reference, self.hidden)
                self._allowed = {
                    (inspection.kind, inspection.target)
                    for inspection in reference_run.inspections
                    if inspection.path not in self.hidden
                }
            inspections = {
                inspection
                for inspection in inspections
                if not is_compared(inspection) or (inspection.kind, inspection.target) not in self._allowed
            }
        findings = {
            f"{inspection.path}:{inspection.line} {_INSPECTIONS[inspection.kind]} ({inspection.target})"
            for inspection in inspections
        }
        return (*sorted(findings), *(f"{text}, so its results are not protected" for text in self._unprotected))


def unprotected_tests(task: RepoTask, hidden: Mapping[str, bytes]) -> list[str]:
    """Returns what poison cannot protect: files that are no source, or tests whose source is not found."""
    names = (*task.fail_to_pass, *task.pass_to_pass)
    if task.runner in REPORT_RUNNERS:
        return [
            f"{test} has no function of its own that can be changed"
            for test in unfound_tests(REPORT_RUNNERS[task.runner], hidden, names)
        ]
    return [f"{path} is no Python source" for path in unreadable_tests(hidden, names)]


async def grade(
    task: RepoTask,
    store: TaskStore,
    changed: Mapping[str, bytes | None],
    runner: Backend | Lender,
    *,
    skipped: Mapping[str, str] | None = None,
    base: Mapping[str, bytes] | None = None,
    limits: Limits = LIMITS,
    test_s: float = TEST_S,
    pays_suspicious: bool = False,
    rng: random.Random | None = None,
) -> GradeReport:
    """Grades a change.

    1. Accepted files replace those of the base tree, whose tests are replaced by the hidden ones.
    2. The tests run in a fresh sandbox. All tests of the task must pass in the call phase.
    3. If they do, the tests run twice more. In each run, a coin decides for each test whether it is poisoned
       (`poison`). A poisoned test that passes, or another one that fails, shows that results are forged. The reference
       solution confirms this.
    4. If fewer than 8 functions had to be fixed, their files run more often, each poisoned or not at random. If the
       tests have data files, they run with changed ones.
    5. If the changed code inspected frames or pytest, read files of the hidden tests, or started processes, and the
       reference solution does not (`audit_hook`), the pass is suspicious.

    Tests of other languages than Python (`RepoTask.runner`) are poisoned without a parser, and step 5 does not exist.

    Use a backend that isolates: the code is hostile. A remaining attack decides for each test whether it is poisoned,
    without inspecting it, and forges its result only if it is not. Answers that pass tests for the wrong reason, such
    as a table of the tests' inputs, are not detected.

    Args:
        changed: path -> new content, or None for a deleted file; unchanged files are ignored (`accepted.changes`).
        skipped: path -> reason, for files that could not be taken out of the policy's sandbox.
        base: files of `/testbed` in the image of a task with an image, whose hidden tests are those files and
            `test_patch`. None takes tree, tests and site of the store.
        limits: of one run.
        test_s: maximum wall time of one test, in seconds.
        pays_suspicious: whether a suspicious pass counts as resolved.
        rng: chooses the poison; by default unpredictable.

    Raises:
        DataError: the store lacks files of the task, or its reference patch is reversed.
        SandboxError: a sandbox failed.
        ScoringError: the tests could not start.
    """
    grader = await asyncio.to_thread(_Grader, task, store, runner, limits=limits, test_s=test_s, base=base)
    chosen = accept(
        grader.base,
        changed,
        skipped=skipped,
        protected=grader.hidden,
        allowed=touched_paths(task.patch),
        site_modules=site_modules(grader.site),
    )
    run = await grader.run(chosen.files, grader.hidden)
    report = _make_report(task, chosen, run)
    if report.resolved:
        forged, suspicious = await _find_cheating(grader, chosen.files, pays_suspicious, rng)
        is_paid = not forged and (pays_suspicious or not suspicious)
        report = replace(report, resolved=is_paid, forged=forged, suspicious=suspicious)
    return replace(report, cpu_s=grader.cpu_s)


async def _find_cheating(
    grader: _Grader, files: Mapping[str, bytes | None], pays_suspicious: bool, rng: random.Random | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the forged results of a change that passes, and what is suspicious about it."""
    suspicious = await grader.suspicious(files)
    if suspicious and not pays_suspicious:
        return (), suspicious
    forged = await grader.forged(files, rng or random.SystemRandom())
    return forged, await grader.suspicious(files)  # in poisoned runs, too


def _make_report(task: RepoTask, chosen: Accepted, run: TestRun) -> GradeReport:
    f2p, p2p = (
        {test: run.outcomes.get(test, "missing") if run.ended else "missing" for test in tests}
        for tests in (task.fail_to_pass, task.pass_to_pass)
    )
    return GradeReport(
        resolved=run.ended and all(outcome == "passed" for outcome in (*f2p.values(), *p2p.values())),
        f2p=f2p,
        p2p=p2p,
        accepted=tuple(sorted(chosen.files)),
        refused=chosen.refused,
        flags=chosen.flags,
        tampered=run.tampered,
        ended=run.ended,
        why=run.why,
    )


def _split_lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").split("\n")
