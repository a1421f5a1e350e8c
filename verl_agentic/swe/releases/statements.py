"""Problem statements of tasks, and the reasons why a task may be unfair."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from verl_agentic.base.text.python_source import parse_python
from verl_agentic.swe.outcomes import Comparison
from verl_agentic.swe.releases.changelog import changelog_items, relevant_items, words_of
from verl_agentic.swe.test_functions import Function, nodes_of_tests

_MAX_CODE_LINES = 12
_MAX_MESSAGE_CHARS = 600
_MIN_LITERAL_CHARS = 8


def release_statements(
    old: Mapping[str, bytes],
    new: Mapping[str, bytes],
    comparison: Comparison,
    why: Mapping[str, str],
    *,
    words: Iterable[str],
) -> tuple[str, str]:
    """Returns (problem statement, hints) of a release.

    The statement is the changelog's items about the change, and the hints are an example. Without such items, the
    example is the statement.

    Args:
        old, new: files of the two releases.
        comparison: tests that tell them apart.
        why: test -> message of its failure before the change.
        words: names of the changed functions.
    """
    task_words = {word for name in (*words, *comparison.f2p) for word in words_of(name)}
    items = relevant_items(changelog_items(old, new), words=task_words)
    example = failing_example(comparison.f2p, new, why)
    if not items:
        return example, ""
    return "\n".join(f"- {item}" for item in items), example


def failing_example(tests: Sequence[str], files: Mapping[str, bytes], why: Mapping[str, str]) -> str:
    """Returns the shortest failing test's code, with its failure: what the call gives and what is expected."""
    nodes = nodes_of_tests(tests, files)
    if not nodes:
        failure = next((f"{test}: {why[test]}" for test in tests if why.get(test)), ", ".join(tests[:3]))
        return f"The package does not behave as expected:\n\n{failure[:_MAX_MESSAGE_CHARS]}"
    test = min(nodes, key=lambda name: (not why.get(name), (nodes[name].end_lineno or 0) - nodes[name].lineno, name))
    code = _render_body(nodes[test], files[test.partition("::")[0]].decode(errors="replace"))
    parameters = f"With the parameters `{test.partition('[')[2][:-1]}`:\n\n" if test.endswith("]") else ""
    message = (why.get(test) or why.get(test.partition("::")[0], "")).strip()[:_MAX_MESSAGE_CHARS]
    result = f"\n\nThis fails:\n\n```\n{message}\n```" if message else "\n\nThis fails."
    return f"The package does not behave as expected. {parameters}```python\n{code}\n```{result}".replace(
        "expected. ```", "expected.\n\n```"
    )


def unfair(
    comparison: Comparison,
    statement: str,
    *,
    old: Mapping[str, str | None],
    new: Mapping[str, str | None],
    tests: Mapping[str, bytes],
) -> dict[str, str]:
    """Returns flag -> explanation of why no reader of the statement could know what the tests ask for.

    `import_only`: all failing tests fail because their file cannot be imported. `exact_message`: a test compares with a
    text that only the solution has. `new_name`: a test uses a name that only the solution has.

    Args:
        comparison: tests that tell the trees apart.
        statement: problem statement.
        old, new: path -> text of the changed sources.
        tests: the hidden tests.
    """
    flags: dict[str, str] = {}
    if comparison.f2p and set(comparison.f2p) == set(comparison.uncollected):
        flags["import_only"] = f"{len(comparison.f2p)} tests fail at the import of their file only"
    before, after = ([tree for text in side.values() if (tree := parse_python(text or ""))] for side in (old, new))
    nodes = list(nodes_of_tests(comparison.f2p, tests).values())
    literals = _collect_literals(nodes)
    texts = {
        text
        for text in _collect_literals(after) - _collect_literals(before)
        if text not in statement and any(text in literal or literal in text for literal in literals)
    }
    if texts:
        flags["exact_message"] = f"tests compare with {sorted(texts, key=len)[-1][:80]!r}"
    names = {
        name
        for name in (_collect_defined(after) - _collect_defined(before)) & _collect_used(nodes)
        if not re.search(rf"\b{name}\b", statement)
    }
    if names:
        flags["new_name"] = f"tests use {', '.join(sorted(names)[:5])}"
    return flags


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def _render_body(node: Function, source: str) -> str:
    """Returns the statements of a function without its docstring; at most 12 lines."""
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    lines = source.splitlines()[body[0].lineno - 1 : node.end_lineno]
    code = textwrap.dedent("\n".join(lines)).splitlines()
    cut = [*code[:_MAX_CODE_LINES], "..."] if len(code) > _MAX_CODE_LINES else code
    return "\n".join(cut)


def _collect_literals(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the texts of at least 8 characters, docstrings excluded."""
    literals = set()
    for tree in nodes:
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                literals |= {node.value} if len(node.value.strip()) >= _MIN_LITERAL_CHARS else set()
    return literals


def _collect_defined(trees: Iterable[ast.Module]) -> set[str]:
    """Returns the public names of functions, classes, arguments and module variables."""
    names: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def _collect_used(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the names that functions use: variables, attributes and keyword arguments."""
    names: set[str] = set()
    for tree in nodes:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                names.add(node.arg)
    return names
