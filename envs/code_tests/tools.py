"""The tool `run_tests`: runs a program on the public tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic import ConfigError, ToolResult
from verl_agentic.graders.code.run_tests import CodeRules, CodeTests, TestReport, run_tests
from verl_agentic.sandbox.interface import Runner
from verl_agentic.tools.python import read_code

SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "run_tests",
        "description": "Runs a program on the public tests and shows those that fail.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The whole program, or the function."}},
            "required": ["code"],
        },
    },
}
_REASONS = {
    "wrong": "wrong answer",
    "error": "the program failed",
    "timeout": "no result in time",
    "not_run": "not run, because the time for all tests was used up",
}


class RunTestsTool:
    """Runs the argument `code` on public tests only."""

    name = "run_tests"

    def __init__(
        self,
        runner: Runner,
        tests: CodeTests,
        *,
        test_s: float,
        memory_mb: int,
        rules: CodeRules,
        shown_failures: int,
        shown_chars: int,
    ) -> None:
        if shown_failures < 1:
            raise ConfigError(f"shown_failures must be at least 1, got {shown_failures!r}")
        self._runner, self._tests = runner, tests
        self._test_s, self._memory_mb, self._rules = test_s, memory_mb, rules
        self._shown_failures, self._shown_chars = shown_failures, shown_chars

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `code`."""
        return SCHEMA

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the number of passed tests, and input, expected and actual output of failed tests."""
        code = read_code(arguments)
        if isinstance(code, ToolResult):
            return code
        report = await run_tests(
            code, self._tests, self._runner, test_s=self._test_s, memory_mb=self._memory_mb, rules=self._rules
        )
        return ToolResult(self._format_report(report))

    def _format_report(self, report: TestReport) -> str:
        total = len(report.verdicts)
        if report.verdicts[0] == "compile_error":
            return f"The program is no valid Python: {self._cut_text(report.outputs[0])}"
        failed = [i for i, verdict in enumerate(report.verdicts) if verdict != "passed"]
        if not failed:
            return f"All {total} public tests passed."
        parts = [f"{total - len(failed)} of {total} public tests passed."]
        parts += [self._format_failure(report, i) for i in failed[: self._shown_failures]]
        if len(failed) > self._shown_failures:
            parts.append(f"{len(failed) - self._shown_failures} more failed.")
        return "\n\n".join(parts)

    def _format_failure(self, report: TestReport, index: int) -> str:
        verdict = report.verdicts[index]
        lines = [f"Test {index + 1}: {_REASONS[verdict]}"]
        lines += [
            "input:",
            self._cut_text(self._tests.inputs[index]),
            "expected:",
            self._cut_text(self._tests.outputs[index]),
        ]
        if verdict == "wrong":
            lines += ["got:", self._cut_text(report.outputs[index])]
        elif verdict == "error":
            lines += ["got:", self._cut_text(_own_frames(report.outputs[index]), keep_end=True)]
        return "\n".join(lines)

    def _cut_text(self, text: str, *, keep_end: bool = False) -> str:
        text = text.strip("\n")
        cut = len(text) - self._shown_chars
        if cut > 0:
            note = f"[{cut} characters cut]"
            return f"{note}{text[cut:]}" if keep_end else f"{text[:-cut]}{note}"
        return text or "[nothing]"


def _own_frames(traceback: str) -> str:
    """Returns the frames of the program in a traceback, or its last line."""
    _, place, frames = traceback.partition('  File "solution.py"')
    return place + frames if place else traceback.strip().rpartition("\n")[2]
