"""Tools that search a repository: grep, glob and read.

They run a few fixed programs in a sandbox, because only another process can be stopped when a pattern takes too long.
Paths that leave the repository are refused. Outputs are bounded, and in the order of the paths.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from verl_agentic.base.types import Tool, ToolResult
from verl_agentic.sandbox.interface import CommandResult

RunScript = Callable[[str, Sequence[str]], Awaitable[CommandResult]]
"""Runs a script of bash with arguments in the folder of the repository."""

INSTRUCTIONS = (
    "You find code in a repository. Search with the tools grep, glob and read; you cannot change anything. You have "
    "{turns} turns, the answer included, and each turn may have up to {calls} calls. Make several calls at once. Your "
    "last turn is the answer, without a call: one line for each place, as path:first-last, where first and last are "
    "numbers of lines. Name all places, no other lines, and write nothing else."
)
"""System message of an agent with these tools, with `{turns}` and `{calls}`."""
MAX_LINES = 200
"""Maximum number of lines of one result."""
_MAX_CHARS, _MAX_BYTES = 16_000, 64_000
_MAX_LINE_BYTES = 300
_MAX_ARGUMENT_CHARS = 500
_LAST_LINE = 10**7
_GREP = rf"""
find "$2" -type f -name "$3" -not -path '*/.git/*' -print0 | LC_ALL=C sort -z \
| xargs -0 -r grep -nHIE -m {MAX_LINES} -e "$1" -- | LC_ALL=C cut -b-{_MAX_LINE_BYTES} | head -c {_MAX_BYTES}
"""
_GLOB = rf"""
shopt -s globstar nullglob
LC_ALL=C
IFS=
for path in $1; do [ -f "$path" ] && printf '%s\n' "$path"; done | head -c {_MAX_BYTES}
"""
_READ = rf"""
[ -f "$1" ] || exit 2
grep -ac '' < "$1"
sed -n "$2,$3p;$3q" -- "$1" | LC_ALL=C cut -b-{_MAX_LINE_BYTES} | head -c {_MAX_BYTES}
"""


class RepositorySearch:
    """Answers the calls of `grep`, `glob` and `read` on one repository."""

    def __init__(self, run: RunScript) -> None:
        """Takes the function that runs a script in the repository's sandbox."""
        self._run = run

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The three tools."""
        from verl_agentic.base.tools.function_tool import tool

        return tool(self.grep), tool(self.glob), tool(self.read)

    async def grep(self, pattern: str, path: str = ".", include: str = "*") -> ToolResult:
        """Returns the lines that match an extended regular expression (ERE), as path:line:text.

        Args:
            pattern: the regular expression; write [0-9] instead of a backslash and d
            path: a file or folder of the repository
            include: only files whose name matches this pattern, such as *.py
        """
        if (
            problem := _find_problem(path)
            or _find_text_problem("pattern", pattern)
            or _find_text_problem("include", include)
        ):
            return _build_refusal(problem)
        result = await self._run(_GREP, [pattern, _protect_path(path), include])
        return _format_output(result, nothing=f"No line matches {pattern!r}.")

    async def glob(self, pattern: str) -> ToolResult:
        """Returns the paths of the files that match a pattern.

        Args:
            pattern: relative to the repository; * and ? match within a folder, ** matches folders, such as src/**/*.py
        """
        if problem := _find_problem(pattern):
            return _build_refusal(problem)
        return _format_output(await self._run(_GLOB, [_protect_path(pattern)]), nothing=f"No file matches {pattern!r}.")

    async def read(self, path: str, first_line: int = 1, last_line: int = MAX_LINES) -> ToolResult:
        """Returns the number of lines of a file, and up to 200 of its lines with their numbers.

        Args:
            path: a file of the repository
            first_line: first line, from 1
            last_line: last line
        """
        if problem := _find_problem(path):
            return _build_refusal(problem)
        if not 1 <= first_line <= last_line or first_line > _LAST_LINE:
            return _build_refusal(
                f"first_line and last_line must be 1 or more, in order, got {first_line} and {last_line}"
            )
        last = min(last_line, first_line + MAX_LINES - 1)
        result = await self._run(_READ, [_protect_path(path), str(first_line), str(last)])
        if result.exit_code == 2 and not result.stdout:
            return _build_refusal(f"there is no file {path!r}; use glob to find files")
        total, _, text = result.stdout.partition("\n")
        lines = text.removesuffix("\n").split("\n")
        numbered = (f"{number}: {line}" for number, line in enumerate(lines, start=first_line))
        head = f"{path} has {total.strip()} lines."
        return _format_output(replace(result, stdout="\n".join([head, *numbered]) if text else ""), nothing=head)


def _format_output(result: CommandResult, *, nothing: str) -> ToolResult:
    """Returns the first lines of an output, or the reason why there is none."""
    if result.timed_out or result.exit_code < 0:
        return _build_refusal("the search took too long or too much memory; use a simpler pattern, or a folder")
    if not result.stdout:
        problem = result.stderr.strip().split("\n")[0][:_MAX_LINE_BYTES]
        return _build_refusal(problem) if problem else ToolResult(nothing)
    lines = [line.removeprefix("./") for line in result.stdout.rstrip("\n").split("\n")]
    text = "\n".join(lines[: MAX_LINES + 1])[:_MAX_CHARS]  # `read` adds a line
    is_cut = len(lines) > MAX_LINES + 1 or len(text) == _MAX_CHARS or len(result.stdout) >= _MAX_BYTES
    return ToolResult(f"{text}\n[more is left out; search for less]" if is_cut else text)


def _protect_path(path: str) -> str:
    """Returns a path that no program takes for an option."""
    return posixpath.join(".", posixpath.normpath(path)) if posixpath.normpath(path) != "." else "."


def _find_problem(path: str) -> str:
    """Returns why a path cannot be searched, or an empty text."""
    if not (problem := _find_text_problem("a path", path)) and (path.startswith("/") or ".." in path.split("/")):
        problem = f"a path must lie in the repository, got {path!r}; give it relative to the repository's folder"
    return problem


def _find_text_problem(name: str, text: str) -> str:
    """Returns why a text cannot be an argument of a program, or an empty text."""
    if 0 < len(text) <= _MAX_ARGUMENT_CHARS and "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text):
        return ""
    return f"{name} must be a text of 1 to {_MAX_ARGUMENT_CHARS} characters, got {text[:40]!r}"


def _build_refusal(reason: str) -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True, error_kind="wrong_arguments")
