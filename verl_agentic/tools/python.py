"""The `python` tool: runs code in a sandbox and returns its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Runner
from verl_agentic.tools.tool import ToolResult

SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs Python code and returns what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The code to run."}},
            "required": ["code"],
        },
    },
}


class PythonTool:
    """Runs the argument `code`; with a pool every call starts empty, with a sandbox files stay."""

    name = "python"

    def __init__(self, runner: Runner, *, limits: Limits) -> None:
        self._runner = runner
        self._limits = limits

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `code`."""
        return SCHEMA

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers with stdout, then stderr and the reason when the code failed."""
        code = read_code(arguments)
        if isinstance(code, ToolResult):
            return code
        result = await self._runner.run(Command(code=code), limits=self._limits)
        return ToolResult(render_result(result), is_error=not result.ok)


def read_code(arguments: Mapping[str, Any]) -> str | ToolResult:
    """Returns the argument `code`, or an error for the policy."""
    code = arguments.get("code")
    if isinstance(code, str) and set(arguments) == {"code"}:
        return code
    text = 'Error: the arguments must be {"code": "<string>"}'
    return ToolResult(text, is_error=True, error_kind="wrong_arguments")


def render_result(result: CommandResult) -> str:
    """Returns the policy's view of a run: stdout, then the error, if any."""
    text = result.stdout.rstrip("\n")
    if result.truncated:
        text += "\n[output truncated]"
    if result.timed_out:
        return f"{text}\nError: the code was stopped after {result.wall_s:.1f} s".lstrip("\n")
    if not result.ok:
        last_line = result.stderr.strip().rsplit("\n", 1)[-1]
        return f"{text}\nError: {last_line or f'exit code {result.exit_code}'}".lstrip("\n")
    return text or "[no output]"
