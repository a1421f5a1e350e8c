"""Rust's test runner, `cargo test`, for integration tests: files in `tests`."""

from __future__ import annotations

import re

from verl_agentic.swe.grading.runners.report_runner import ReportRunner, RunReport, TestForm, TestOutcome, merge_outcome

_START = re.compile(r"running (\d{1,9}) tests?")
_RESULT = re.compile(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, .*)?")
_END = re.compile(r"test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored; .*")
_FAILURE = re.compile(r"---- (\S+) stdout ----")
_OUTCOMES: dict[str, TestOutcome] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
_MAX_WHY = 1000


def read_results(text: str) -> RunReport:
    """Reads the report of one file of tests. A test in a module has the name `module::test`."""
    outcomes: dict[str, TestOutcome] = {}
    why: dict[str, str] = {}
    num_tests, num_results, num_counted = -1, 0, -2
    failure = ""
    for line in text.split("\n"):
        if (start := _START.fullmatch(line)) and num_tests < 0:
            num_tests = int(start[1])
        elif num_results < num_tests and (result := _RESULT.fullmatch(line)):
            merge_outcome(outcomes, result[1], _OUTCOMES[result[2]])
            num_results += 1
        elif section := _FAILURE.fullmatch(line):
            failure = section[1]
        elif end := _END.fullmatch(line):
            num_counted = sum(map(int, end.groups()))
        elif failure in outcomes and line != "failures:":
            why[failure] = f"{why.get(failure, '')}{line}\n"[:_MAX_WHY].lstrip("\n")
    return RunReport(outcomes=outcomes, why=why) if num_tests == num_results == num_counted else RunReport()


def _make_command(target: str) -> tuple[str, ...]:
    """Returns the command for `tests/NAME.rs` or `tests/NAME/main.rs`."""
    name = target.removesuffix("/main.rs").removesuffix(".rs").rpartition("/")[2]
    return ("cargo", "test", "--offline", "--test", name)


CARGO = ReportRunner(
    name="cargo",
    language="Rust",
    toolchain=("rustc", "--print", "sysroot"),
    make_command=_make_command,
    read=read_results,
    # Beside the repository, whose files are read at the end of an episode.
    env={"CARGO_TARGET_DIR": "../target", "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_TEST_DEBUG": "0"},
    form=TestForm(
        files=re.compile(r".*\.rs"),
        head=re.compile(r"#\[(?:\w+::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?(?:async )?fn (?P<name>\w+)"),
        body=re.compile(r"\{"),
        check=re.compile(r"^.*\bassert\w*!.*$", re.M),
        failure="panic!({text});",
    ),
)
