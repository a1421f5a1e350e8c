"""Go's test runner, `go test -json`."""

from __future__ import annotations

import json
import re
from typing import Any

from verl_agentic.swe.grading.runners.report_runner import ReportRunner, RunReport, TestForm, TestOutcome, merge_outcome

_OUTCOMES: dict[str, TestOutcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_MAX_WHY = 1000


def read_events(text: str) -> RunReport:
    """Reads the events of one package. A row of a test (`t.Run`) has the name `TestName/row`."""
    outcomes: dict[str, TestOutcome] = {}
    outputs: dict[str, str] = {}
    has_ended = False
    for line in text.split("\n"):
        event = _read_event(line)
        test, action = event.get("Test"), str(event.get("Action"))
        if isinstance(test, str) and action == "output":
            outputs[test] = (outputs.get(test, "") + str(event.get("Output", "")))[-_MAX_WHY:]
        elif action in _OUTCOMES and isinstance(test, str):
            merge_outcome(outcomes, test, _OUTCOMES[action])
        elif action in _OUTCOMES:
            has_ended = True  # the package
    if not has_ended:
        return RunReport()
    return RunReport(
        outcomes=outcomes, why={test: outputs.get(test, "") for test in outcomes if outcomes[test] == "failed"}
    )


def _read_event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


GO = ReportRunner(
    name="go",
    language="Go",
    toolchain=("go", "env", "GOROOT"),
    make_command=lambda target: ("go", "test", "-json", "-count=1", f"./{target}"),
    read=read_events,
    env={"CGO_ENABLED": "0", "GOPROXY": "off", "GOTOOLCHAIN": "local"},
    by_folder=True,
    form=TestForm(
        files=re.compile(r".*_test\.go"),
        head=re.compile(r"^func (?P<name>Test\w*)\((?P<t>[A-Za-z]\w*) \*testing\.T\)", re.M),
        body=re.compile(r"\{"),
        check=re.compile(r"^.*(?:!=|==|\bassert\.|\brequire\.).*$", re.M),
        failure="{t}.Fatal({text});",
        rows="/",
    ),
)
