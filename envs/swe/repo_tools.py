"""Tools of scaffolds over a repository in a sandbox: commands, editor, search, submit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from verl_agentic import ToolResult
from verl_agentic.sandbox.interface import CommandResult

from .repo_box import RepoBox
from .scaffold import Scaffold, ToolForm

_MAX_FOUND_FILES = 100


class CommandTool:
    """Runs a command line, in a new shell or in the shell of the episode."""

    def __init__(self, form: ToolForm, *, scaffold: Scaffold, repo: RepoBox) -> None:
        self._form, self._scaffold, self._repo = form, scaffold, repo
        self.name = form.name
        self.timeout_s = tool_timeout_s(scaffold)
        self.is_submitted = False
        self.commands: list[str] = []
        """Command lines of the episode."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required text."""
        return schema_of(self._form, {self._form.argument: "The command line."}, required=[self._form.argument])

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the observation of the scaffold's form; a failed command is an error."""
        text = arguments.get(self._form.argument)
        if not isinstance(text, str) or not text.strip():
            return _build_refusal(f"{self._form.argument} must be a command line, got {text!r}")
        first = text.split()[0]
        if first in self._scaffold.refused_commands:
            return _build_refusal(f"the command {first!r} is not allowed here; use another one")
        self.commands.append(text)
        run = self._repo.shell if self._form.kind == "shell" else self._repo.command
        result = await run(text, wall_s=self._scaffold.command_timeout_s)
        marker = self._scaffold.submit_marker
        self.is_submitted = bool(marker) and result.ok and result.stdout.lstrip().partition("\n")[0].strip() == marker
        return ToolResult(self._format_result(result), is_error=not result.ok)

    def _format_result(self, result: CommandResult) -> str:
        scaffold = self._scaffold
        output = "\n".join(filter(None, (result.stdout.rstrip("\n"), result.stderr.rstrip("\n"))))
        form = scaffold.timeout_observation if result.timed_out else scaffold.observation
        return form.format(
            output=shortened(output, scaffold.max_output_chars) or scaffold.no_output,
            stdout=shortened(result.stdout, scaffold.max_output_chars),
            stderr=shortened(result.stderr, scaffold.max_output_chars),
            exit_code=result.exit_code,
            timeout_s=scaffold.command_timeout_s,
        )


class SearchTool:
    """Finds a text in the files of the repository."""

    def __init__(self, form: ToolForm, *, scaffold: Scaffold, repo: RepoBox) -> None:
        self._form, self._scaffold, self._repo = form, scaffold, repo
        self.name, self.timeout_s = form.name, tool_timeout_s(scaffold)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: `search_term`, and the optional `path`."""
        arguments = {"search_term": "The text to find.", "path": "A file or folder; by default the repository."}
        return schema_of(self._form, arguments, required=["search_term"])

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the lines with the text, by file; only their number if they are in too many files."""
        term, path = arguments.get("search_term"), arguments.get("path", ".")
        if not isinstance(term, str) or not term or not isinstance(path, str):
            return _build_refusal(f"search_term and path must be texts, got {term!r} and {path!r}")
        line = f"grep -rnIF --exclude-dir=.git -e {shlex.quote(term)} -- {shlex.quote(path)}"
        result = await self._repo.command(line, wall_s=self._scaffold.command_timeout_s)
        if result.exit_code == 1:
            return ToolResult(f"No line of {path} has {term!r}.")
        if not result.ok:
            return _build_refusal(result.stderr.strip() or "the search took too long")
        lines = result.stdout.splitlines()
        files = {match_line.partition(":")[0] for match_line in lines}
        if len(files) > _MAX_FOUND_FILES:
            return _build_refusal(f"{len(files)} files have {term!r}; search for a longer text, or in a folder")
        return ToolResult(shortened("\n".join(lines), self._scaffold.max_output_chars))


class SubmitTool:
    """Ends the episode, after a review if the scaffold has one."""

    def __init__(self, form: ToolForm, *, scaffold: Scaffold, repo: RepoBox) -> None:
        self._form, self._scaffold, self._repo = form, scaffold, repo
        self.name, self.timeout_s = form.name, tool_timeout_s(scaffold)
        self.is_submitted = False
        self._is_reviewed = not scaffold.review

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: no arguments."""
        return schema_of(self._form, {}, required=[])

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Submits; the first call shows the change for a review instead, if the scaffold has one."""
        if self._is_reviewed:
            self.is_submitted = True
            return ToolResult("The change is submitted.")
        self._is_reviewed = True
        diff = await self._repo.command("git add -A -N . && git diff", wall_s=self._scaffold.command_timeout_s)
        return ToolResult(self._scaffold.review.format(diff=shortened(diff.stdout, self._scaffold.max_output_chars)))


def tool_timeout_s(scaffold: Scaffold) -> float:
    """Returns the deadline of a call; the sandbox ends the commands themselves."""
    return 2 * scaffold.command_timeout_s + 60


def schema_of(form: ToolForm, arguments: Mapping[str, Any], *, required: list[str]) -> Mapping[str, Any]:
    """Returns an OpenAI function schema; an argument is its description, or a JSON schema."""
    properties = {
        name: {"type": "string", "description": argument} if isinstance(argument, str) else argument
        for name, argument in arguments.items()
    }
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": form.name, "description": form.description, "parameters": parameters},
    }


def shortened(text: str, max_chars: int) -> str:
    """Returns a text with head and tail, and the number of characters between them that are left out."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out]\n{text[-half:]}"


def _build_refusal(reason: str) -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True)
