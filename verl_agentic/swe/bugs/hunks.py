"""Parts of a release's fix: the changed lines of one function, taken back alone."""

from __future__ import annotations

import ast
import difflib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from verl_agentic.base.text.python_source import parse_python
from verl_agentic.swe.bugs.bug import Bug
from verl_agentic.swe.releases.file_kinds import is_version_only

MAX_PARTS = 30
"""Largest number of parts of one file."""


class _Edit(NamedTuple):
    old: tuple[int, int]
    """Lines of the old text."""
    new: tuple[int, int]
    """Lines of the new text that replace them."""


def hunk_bugs(path: str, old: str, new: str) -> Iterator[Bug]:
    """Yields the new text of a file with the changes of one function, or one change at module level, taken back.

    A function with several changes gives a part for all of them and one for each. Texts that do not parse are left
    out. At most 30 parts of a file are made: whole functions first, then single changes.
    """
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    spans = functions_with_lines(new)
    groups: dict[str, list[_Edit]] = {}
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal" or is_version_only("".join(before[a:b]), "".join(after[c:d])):
            continue
        groups.setdefault(_find_unit(spans, c, d), []).append(_Edit((a, b), (c, d)))
    single = {
        f"{name}, change {number}": [edit]
        for name, edits in groups.items()
        if len(edits) > 1
        for number, edit in enumerate(edits, start=1)
    }
    for name, edits in itertools.islice({**groups, **single}.items(), MAX_PARTS):
        text = _revert_edits(before, after, edits)
        if text != new and _is_real(text, new):
            yield Bug(
                path=path, broken=text, name=name, unit="" if name.startswith("line ") else name.partition(",")[0]
            )


def functions_with_lines(source: str) -> list[tuple[int, int, str]]:
    """Returns (first line, line after the last, qualified name) of all functions; lines count from 0."""
    spans: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    spans.append((first - 1, child.end_lineno or first, name))
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    tree = parse_python(source)
    if tree is not None:
        visit(tree, "")
    return spans


def _find_unit(spans: list[tuple[int, int, str]], first: int, last: int) -> str:
    """Returns the innermost function that has the lines, or `line N`."""
    inside = [span for span in spans if span[0] <= first and max(last, first + 1) <= span[1]]
    return min(inside, key=lambda span: span[1] - span[0])[2] if inside else f"line {first + 1}"


def _revert_edits(before: list[str], after: list[str], edits: list[_Edit]) -> str:
    lines: list[str] = []
    index = 0
    for edit in edits:
        lines += after[index : edit.new[0]] + before[slice(*edit.old)]
        index = edit.new[1]
    return "".join(lines + after[index:])


def _is_real(broken: str, good: str) -> bool:
    """Returns whether a text parses and differs in more than comments, docstrings and spaces."""
    trees = [parse_python(text) for text in (broken, good)]
    if trees[0] is None or trees[1] is None:
        return False
    return ast.dump(_strip_docstrings(trees[0])) != ast.dump(_strip_docstrings(trees[1]))


def _strip_docstrings(tree: ast.Module) -> ast.Module:
    """Removes docstrings."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        is_block = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_block and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return tree
