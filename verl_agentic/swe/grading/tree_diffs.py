"""Unified diffs of trees: made and applied without git, exactly."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from verl_agentic.base.errors import DataError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file"


def tree_diff(old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]) -> str:
    """Returns a diff in git's form of all text files that differ; files that are not UTF-8 are left out."""
    parts = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before != after:
            try:
                parts.append(_file_diff(path, before, after))
            except UnicodeDecodeError:
                continue
    return "".join(parts)


def count_changed(patch: str) -> int:
    """Returns the number of added and removed lines."""
    return sum(line[:1] in "+-" and not line.startswith(("+++ ", "--- ")) for line in patch.splitlines() if line)


def apply_diff(files: Mapping[str, bytes], patch: str) -> dict[str, bytes]:
    """Returns the whole tree after a diff. Raises DataError if a hunk does not fit exactly."""
    changed = changed_by(files, patch)
    return {path: content for path, content in {**files, **changed}.items() if content is not None}


class ReversedPatchError(DataError):
    """A diff that fits only backwards."""


def changed_by(files: Mapping[str, bytes], patch: str) -> dict[str, bytes | None]:
    """Returns path -> new content of each file of a diff; None for removed files.

    Raises:
        ReversedPatchError: the diff fits this tree only backwards.
        DataError: a hunk does not fit exactly.
    """
    try:
        return _apply_files(files, patch)
    except DataError as cause:
        try:
            _apply_files(files, reverse_diff(patch))
        except (DataError, UnicodeDecodeError):
            raise cause from None
        raise ReversedPatchError(
            f"the patch fits only backwards, got a tree that already has its changes: {cause}; reverse the patch, or "
            "import the rows with their --format"
        ) from cause


def _apply_files(files: Mapping[str, bytes], patch: str) -> dict[str, bytes | None]:
    changed: dict[str, bytes | None] = {}
    lines = patch.split("\n")
    index = 0
    while index < len(lines):
        if not lines[index].startswith("--- ") or index + 1 >= len(lines) or not lines[index + 1].startswith("+++ "):
            index += 1
            continue
        old_path, new_path = _parse_path(lines[index][4:]), _parse_path(lines[index + 1][4:])
        path = old_path if new_path is None else new_path
        if path is None:
            raise DataError(f"a diff names no file, got {lines[index]!r}; fix the patch")
        content = files.get(old_path, b"") if old_path is not None else b""
        text, index = _apply_hunks(content.decode(), lines, index + 2, path=path)
        if old_path is not None and old_path != path:
            changed[old_path] = None
        changed[path] = None if new_path is None else text.encode()
    return changed


def hunk_ranges(patch: str) -> dict[str, list[list[int]]]:
    """Returns old path -> first and last line of each hunk, context included. New files have none."""
    ranges: dict[str, list[list[int]]] = {}
    lines = patch.split("\n")
    index, path = 0, None
    while index < len(lines):
        if lines[index].startswith("--- ") and lines[index + 1 : index + 2] and lines[index + 1].startswith("+++ "):
            path, index = _parse_path(lines[index][4:]), index + 2
        elif header := _HUNK.match(lines[index]):
            first, count = int(header[1]), int(header[2] or 1)
            if path is not None and count:
                ranges.setdefault(path, []).append([first, first + count - 1])
            _, index = _read_hunk(lines, index + 1, count, int(header[4] or 1))
        else:
            index += 1
    return ranges


def reverse_diff(patch: str) -> str:
    """Returns the diff that undoes another one."""
    lines = []
    for line in patch.split("\n"):
        if header := _HUNK.match(line):
            old, new = (line.split()[place][1:] for place in (1, 2))
            lines.append(f"@@ -{new} +{old} @@{line[header.end() :]}")
        elif line.startswith(("--- ", "+++ ")):
            lines.append(line)
        else:
            swapped = {"+": "-", "-": "+"}.get(line[:1])
            lines.append(line if swapped is None else swapped + line[1:])
    return "\n".join(_with_swapped_names(lines))


def _with_swapped_names(lines: list[str]) -> list[str]:
    """Swaps old and new names of files, and the lines about new and deleted files."""
    result = list(lines)
    modes = {"new file mode": "deleted file mode", "deleted file mode": "new file mode"}
    for index, line in enumerate(lines):
        after = lines[index + 1] if index + 1 < len(lines) else ""
        if line.startswith("--- ") and after.startswith("+++ "):
            old, new = line[4:], after[4:]
            result[index] = "--- " + (f"a/{new[2:]}" if new.startswith("b/") else new)
            result[index + 1] = "+++ " + (f"b/{old[2:]}" if old.startswith("a/") else old)
        for mode, other in modes.items():
            if line.startswith(mode):
                result[index] = other + line[len(mode) :]
    return result


def _file_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    head = f"diff --git a/{path} b/{path}\n"
    head += "new file mode 100644\n" if before is None else "deleted file mode 100644\n" if after is None else ""
    old, new = (_split_keeping_ends(content) for content in (before, after))
    names = "/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}"
    body = [
        line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n" for line in difflib.unified_diff(old, new, *names)
    ]
    return head + "".join(body)


def _split_keeping_ends(content: bytes | None) -> list[str]:
    """Splits at line feeds only, so that other line ends stay."""
    text = (content or b"").decode()
    return [f"{line}\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def _parse_path(name: str) -> str | None:
    name = name.split("\t")[0].strip()
    if name == "/dev/null":
        return None
    return name[2:] if name.startswith(("a/", "b/")) else name


def _apply_hunks(text: str, lines: list[str], index: int, *, path: str) -> tuple[str, int]:
    """Returns the text after the hunks from line `index` on, and the line after them."""
    source = _split_keeping_ends(text.encode())
    result: list[str] = []
    num_copied = 0
    while index < len(lines) and (header := _HUNK.match(lines[index])):
        start, count = int(header[1]), int(header[2] or 1)
        start = start if count == 0 else start - 1
        result += source[num_copied:start]
        hunk, index = _read_hunk(lines, index + 1, count, int(header[4] or 1))
        old = [line for sign, line in hunk if sign != "+"]
        if source[start : start + count] != old:
            raise DataError(f"a hunk does not fit {path}, got line {start + 1}; make the patch against this tree")
        result += [line for sign, line in hunk if sign != "-"]
        num_copied = start + count
    return "".join(result + source[num_copied:]), index


def _read_hunk(lines: list[str], index: int, num_old: int, num_new: int) -> tuple[list[tuple[str, str]], int]:
    """Returns (sign, line) of one hunk, and the line after it."""
    hunk: list[tuple[str, str]] = []
    while num_old > 0 or num_new > 0:
        line = lines[index] if index < len(lines) else ""
        sign = line[:1] or " "  # some tools strip the space of an empty line
        if sign not in " +-":
            raise DataError(f"a hunk is shorter than its header says, got {line[:80]!r}; fix the patch")
        num_old -= sign != "+"
        num_new -= sign != "-"
        index += 1
        is_last = index < len(lines) and lines[index].startswith("\\")
        hunk.append((sign, line[1:] + ("" if is_last else "\n")))
        index += is_last
        if index > len(lines):
            raise DataError("a diff ends inside of a hunk, got a cut file; make the patch again")
    return hunk, index
