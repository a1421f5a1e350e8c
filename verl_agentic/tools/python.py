"""The `python` tool: runs code in a sandbox and returns its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.base.types import ToolResult
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Runner

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
        """Returns what Python prints: stdout, then stderr, together at most `Limits.output_bytes`."""
        code = read_code(arguments)
        if isinstance(code, ToolResult):
            return code
        result = await self._runner.run(Command(code=code), limits=self._limits)
        return ToolResult(render_result(result, max_bytes=self._limits.output_bytes), is_error=not result.ok)


def read_code(arguments: Mapping[str, Any]) -> str | ToolResult:
    """Returns the argument `code`, or an error for the policy."""
    code = arguments.get("code")
    if isinstance(code, str) and set(arguments) == {"code"}:
        return code
    text = 'Error: the arguments must be {"code": "<string>"}'
    return ToolResult(text, is_error=True, error_kind="wrong_arguments")


def render_result(result: CommandResult, *, max_bytes: int) -> str:
    """Returns the policy's view of a run: stdout, then stderr, then why it ended if neither says so.

    Both together are cut in the middle to `max_bytes`, lines about what was left out not counted.
    """
    stdout, stderr = result.stdout, result.stderr
    is_cut = result.truncated
    if stdout and stderr and len((stdout + stderr).encode()) > max_bytes:
        is_cut = True
        sizes = [len(text.encode()) for text in (stdout, stderr)]
        stdout, stderr = (
            _cut_middle(text, max(max_bytes // 2, max_bytes - size_of_other))
            for text, size_of_other in zip((stdout, stderr), reversed(sizes), strict=True)
        )
    parts = [stdout, stderr.rstrip("\n")]
    if is_cut:
        parts.append("[output truncated]")
    if result.timed_out:
        parts.append(f"Error: the code was stopped after {result.wall_s:.1f} s")
    elif not result.ok and (not stderr.strip() or result.exit_code < 0):
        parts.append(f"Error: exit code {result.exit_code}")
    return "\n".join(part.removesuffix("\n") for part in parts if part).rstrip("\n") or "[no output]"


def _cut_middle(text: str, max_bytes: int) -> str:
    """Returns text without its middle if it is longer than `max_bytes` of UTF-8."""
    data, half = text.encode(), max(0, max_bytes) // 2
    if len(data) <= max_bytes:
        return text
    return data[:half].decode(errors="ignore") + "\n...\n" + data[len(data) - half :].decode(errors="ignore")
