"""The editor of coding agents: view, create, str_replace, insert, undo_edit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from verl_agentic import ConfigError, ToolResult

from .repo_box import RepoBox
from .repo_tools import schema_of, shortened, tool_timeout_s
from .scaffold import Scaffold, ToolForm

_AROUND = 4  # lines shown before and after a change
_COMMANDS = ["view", "create", "str_replace", "insert"]


class _EditError(Exception):
    """The edit cannot be made; the message is for the policy."""


class EditorTool:
    """Views and changes files of the repository; each change shows the lines around it."""

    def __init__(self, form: ToolForm, *, scaffold: Scaffold, repo: RepoBox) -> None:
        self._form, self._scaffold, self._repo = form, scaffold, repo
        self.name, self.timeout_s = form.name, tool_timeout_s(scaffold)
        self._commands = [*_COMMANDS, "undo_edit"] if form.undo else _COMMANDS
        self._history: dict[str, list[bytes | None]] = {}

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: `command` and `path`, and the arguments of each command."""
        arguments: dict[str, Any] = {
            "command": {"type": "string", "enum": self._commands, "description": "The operation."},
            "path": f"Path of the file or folder, absolute or in {self._repo.root or 'the repository'}.",
            "file_text": "For create: the content of the new file.",
            "old_str": "For str_replace: the text to replace; it must occur exactly once.",
            "new_str": "For str_replace and insert: the new text.",
            "insert_line": {
                "type": "integer",
                "description": "For insert: new_str is put behind this line; 0: at the begin.",
            },
            "view_range": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "For view: first and last line; -1 is the last line of the file.",
            },
        }
        return schema_of(self._form, arguments, required=["command", "path"])

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Carries out one command; a wrong argument is an error that says how to correct it."""
        command, path = arguments.get("command"), arguments.get("path")
        try:
            if command not in self._commands:
                raise _EditError(f"command must be one of {', '.join(self._commands)}, got {command!r}")
            if not isinstance(path, str) or not path:
                raise _EditError(f"path must be the path of a file, got {path!r}")
            text = await getattr(self, f"_{command}")(path, arguments)
        except (_EditError, ConfigError) as cause:
            return ToolResult(f"Error: {cause}", is_error=True)
        return ToolResult(shortened(text, self._scaffold.max_output_chars))

    async def _view_path(self, path: str, arguments: Mapping[str, Any]) -> str:
        content = await self._repo.read(path) if path.rstrip("/") not in (".", self._repo.root) else None
        if content is None:
            line = f"find {shlex.quote(path)} -maxdepth 2 -not -path '*/.*' | sort"
            result = await self._repo.command(line, wall_s=self._scaffold.command_timeout_s)
            if not result.ok:
                raise _EditError(f"there is no file or folder {path}")
            return f"Files of {path}, up to 2 levels deep:\n{result.stdout}"
        lines = _decode_content(content, path).split("\n")
        first, last = 1, len(lines)
        if (view_range := arguments.get("view_range")) is not None:
            is_pair = isinstance(view_range, list) and len(view_range) == 2 and all(type(n) is int for n in view_range)
            first, last = view_range if is_pair else (0, 0)
            last = len(lines) if last == -1 else last
            if not 1 <= first <= last <= len(lines):
                raise _EditError(f"view_range must be two lines of 1 to {len(lines)}, got {view_range}")
        return _number_lines(lines, first, last)

    async def _create_file(self, path: str, arguments: Mapping[str, Any]) -> str:
        text = _read_text(arguments, "file_text")
        if await self._repo.read(path) is not None:
            raise _EditError(f"{path} exists already; use str_replace or insert")
        await self._save_file(path, None, text)
        return f"Created {path}."

    async def _str_replace(self, path: str, arguments: Mapping[str, Any]) -> str:
        old, new = _read_text(arguments, "old_str"), _read_text(arguments, "new_str", default="")
        before = await self._read_existing(path)
        text = _decode_content(before, path)
        count = text.count(old) if old else 0
        if count != 1:
            lines = [text.count("\n", 0, place) + 1 for place in _find_places(text, old)]
            raise _EditError(
                f"old_str must occur exactly once in {path}, got {count} times{f' (lines {lines})' if lines else ''}; "
                "copy the lines exactly, with enough lines around them"
            )
        if old == new:
            raise _EditError("new_str must differ from old_str")
        await self._save_file(path, before, text.replace(old, new))
        first = text.count("\n", 0, text.index(old)) + 1
        return await self._show_change(path, first, first + new.count("\n"))

    async def _insert_lines(self, path: str, arguments: Mapping[str, Any]) -> str:
        new, line = _read_text(arguments, "new_str"), arguments.get("insert_line")
        before = await self._read_existing(path)
        lines = _decode_content(before, path).split("\n")
        if type(line) is not int or not 0 <= line <= len(lines):
            raise _EditError(f"insert_line must be 0 to {len(lines)}, got {line!r}")
        added = new.split("\n")
        await self._save_file(path, before, "\n".join([*lines[:line], *added, *lines[line:]]))
        return await self._show_change(path, line + 1, line + len(added))

    async def _undo_edit(self, path: str, arguments: Mapping[str, Any]) -> str:
        history = self._history.get(path)
        if not history:
            raise _EditError(f"no edit of {path} is left to undo")
        before = history.pop()
        if before is None:
            await self._repo.command(f"rm -f -- {shlex.quote(path)}", wall_s=self._scaffold.command_timeout_s)
            return f"Removed {path}, which was created by the last edit."
        await self._repo.write(path, before)
        return f"Took back the last edit of {path}."

    async def _read_existing(self, path: str) -> bytes:
        content = await self._repo.read(path)
        if content is None:
            raise _EditError(f"there is no file {path}; create makes one")
        return content

    async def _save_file(self, path: str, before: bytes | None, text: str) -> None:
        await self._repo.write(path, text.encode("utf-8", "surrogatepass"))
        self._history.setdefault(path, []).append(before)

    async def _show_change(self, path: str, first: int, last: int) -> str:
        lines = _decode_content(await self._read_existing(path), path).split("\n")
        excerpt = _number_lines(lines, max(1, first - _AROUND), min(len(lines), last + _AROUND))
        return f"Changed {path}; the lines around the change are:\n{excerpt}"


def _read_text(arguments: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise _EditError(f"{name} must be a text, got {value!r}")
    return value


def _decode_content(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _EditError(f"{path} is not a text file") from None


def _find_places(text: str, part: str) -> list[int]:
    """Returns the offsets of the first occurrences of a part, at most ten."""
    places: list[int] = []
    while part and len(places) < 10 and (place := text.find(part, places[-1] + 1 if places else 0)) >= 0:
        places.append(place)
    return places


def _number_lines(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1))
