"""Node's own test runner, `node --test`, and its report in TAP."""

from __future__ import annotations

import re

from verl_agentic.swe.grading.runners.report_runner import ReportRunner, RunReport, TestForm, TestOutcome, merge_outcome

_RESULT = re.compile(r"( *)(not ok|ok) \d+ - (.*?)(?: # (SKIP|TODO)\b.*)?")
_INDENT = 4
_NESTED = " > "
_MAX_WHY = 1000
_FILE = re.compile(r"\A/[^>]*\.[cm]?js(?: > |\Z)")
"""A file, which is a test around its tests in older versions, and a failed test if it does not load."""


def read_tap(text: str) -> RunReport:
    """Reads a report of node 18 or newer. The name of a nested test begins with the names of the tests around it.

    What code prints is a comment of the report, and a message of a failure is in a block of YAML, so neither can be
    taken for a result.
    """
    results: dict[int, list[tuple[str, TestOutcome, str]]] = {}  # by depth; a result follows those inside of it
    block, is_text = "", False
    num_planned, num_outer, depth = -1, 0, 0
    for line in text.split("\n"):
        if block:
            name, outcome, why = results[depth][-1]
            if line == f"{block}...":
                block = ""
            elif error := re.fullmatch(rf"{block}error: (['\"]?)(.*)\1", line):
                is_text = error[2] == "|-"  # then the next lines are the message
                results[depth][-1] = name, outcome, "" if is_text else error[2]
            elif is_text := is_text and line.startswith(f"{block}  "):
                results[depth][-1] = name, outcome, f"{why}{line[len(block) + 2 :]}\n"[:_MAX_WHY]
        elif line.strip(" ") == "---" and results:
            block = line[:-3]
        elif match := _RESULT.fullmatch(line):
            depth = len(match[1]) // _INDENT
            num_outer += depth == 0
            name = re.sub(r"\\(.)", r"\1", match[3])
            for inner, outcome, why in results.pop(depth + 1, []):
                results.setdefault(depth, []).append((f"{name}{_NESTED}{inner}", outcome, why))
            results.setdefault(depth, []).append((name, _read_outcome(match[2], match[4]), ""))
        elif line.startswith("1.."):
            num_planned = int(line[3:]) if re.fullmatch(r"\d{1,9}", line[3:]) else -1
    if num_planned != num_outer:
        return RunReport()
    outcomes: dict[str, TestOutcome] = {}
    reasons: dict[str, str] = {}
    for full_name, outcome, why in results.get(0, []):
        if name := _FILE.sub("", full_name):
            merge_outcome(outcomes, name, outcome)
            reasons |= {name: why} if why else {}
    return RunReport(outcomes=outcomes, why=reasons)


def _read_outcome(status: str, directive: str | None) -> TestOutcome:
    if directive == "SKIP":
        return "skipped"
    if directive == "TODO":
        return "xpassed" if status == "ok" else "xfailed"
    return "passed" if status == "ok" else "failed"


NODE = ReportRunner(
    name="node",
    language="JavaScript",
    toolchain=("node", "-p", "path.dirname(path.dirname(fs.realpathSync(process.execPath)))"),
    make_command=lambda target: ("node", "--test", "--test-reporter=tap", target),
    read=read_tap,
    form=TestForm(
        files=re.compile(r".*\.(?:js|mjs|cjs)"),
        head=re.compile(
            r"""(?<![\w.])(?:t\.)?(?:test|it)(?:\.\w+)?\(\s*(?P<quote>['"`])(?P<name>(?:\\.|(?!(?P=quote)).)*)(?P=quote)"""
        ),
        body=re.compile(r"(?:=>|function\s*\w*\s*\([^()]*\))\s*\{"),
        check=re.compile(r"^.*(?:\bassert\b|\bexpect\(|\.(?:equal|deepEqual|strictEqual|is)\().*$", re.M),
        failure="throw new Error({text});",
        quotes="\"'",
        nested=_NESTED,
    ),
)
