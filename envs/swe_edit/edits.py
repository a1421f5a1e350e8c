"""Edits of an answer: applied to a tree, brought into a normal form, and written for a known solution."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from verl_agentic.base.text.python_source import parse_python
from verl_agentic.graders.code.patches import FormatError, apply_search_replace, parse_search_replace

_FORM = "```\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
EXAMPLE = _FORM.format(path="path/of/the/file.py", search="lines of the file", replace="new lines")
"""One edit, as the prompt shows it."""


def changed_by_answer(base: Mapping[str, bytes], answer: str) -> dict[str, bytes]:
    """Returns path -> new content of the files that an answer changes.

    Raises:
        FormatError: the answer has no edit, or an edit does not fit.
    """
    edits = parse_search_replace(answer)
    if not edits:
        raise FormatError("no SEARCH/REPLACE block")
    try:
        old = {path: base[path].decode() for path in edits if path in base}
    except UnicodeDecodeError as cause:
        raise FormatError("a file is no text") from cause
    return {path: text.encode("utf-8", "replace") for path, text in apply_search_replace(old, edits).items()}


def normal_form(base: Mapping[str, bytes], changed: Mapping[str, bytes | None]) -> tuple[tuple[str, str], ...]:
    """Returns the changes without comments, docstrings and layout; equal for patches that do the same.

    Files that only differ in these are left out, so a patch without effect gives an empty form.
    """
    forms = ((path, _reduce_source(path, changed[path])) for path in sorted(changed))
    return tuple((path, form) for path, form in forms if form != _reduce_source(path, base.get(path)))


def _reduce_source(path: str, content: bytes | None) -> str:
    text = (content or b"").decode("utf-8", "replace")
    tree = parse_python(text) if path.endswith(".py") else None
    if tree is None:
        return "\n".join(line.strip() for line in text.split("\n") if line.strip())
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def written_edits(base: Mapping[str, bytes], fixed: Mapping[str, bytes | None]) -> str:
    """Returns the answer that makes some changes: one edit per file, with as many lines as make it unique."""
    return "\n\n".join(
        _format_edit(path, base.get(path, b"").decode(), (content or b"").decode())
        for path, content in sorted(fixed.items())
    )


def _format_edit(path: str, old: str, new: str) -> str:
    before, after = old.split("\n"), new.split("\n")
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    max_tail = shorter - head
    tail = next((i for i in range(max_tail) if before[-1 - i] != after[-1 - i]), max_tail)
    while True:
        search, replace = "\n".join(before[head : len(before) - tail]), "\n".join(after[head : len(after) - tail])
        if (search and replace and f"\n{old}".count(f"\n{search}") == 1) or not head + tail:
            return _FORM.format(path=path, search=search, replace=replace)
        head, tail = max(head - 1, 0), max(tail - 1, 0)
