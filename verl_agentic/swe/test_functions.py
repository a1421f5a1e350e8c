"""Test functions by test id: their source, their names, and trees without them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from verl_agentic.base.text.python_source import parse_python

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_of(test: str) -> tuple[str, str]:
    """Returns (file, qualified name without parameters) of a test id: `t.py::A::b[1]` gives `t.py` and `A::b`."""
    path, _, name = test.partition("::")
    return path, name.partition("[")[0]


def functions_in(source: str) -> dict[str, Function]:
    """Returns qualified name -> function of the tests in a source; empty if it does not parse."""
    tree = parse_python(source)
    functions: dict[str, Function] = {}

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, Function):
                functions[prefix + node.name] = node
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}::")

    if tree is not None:
        visit(tree.body, "")
    return functions


def nodes_of_tests(tests: Iterable[str], files: Mapping[str, bytes]) -> dict[str, Function]:
    """Returns test id -> its function, for tests whose function is found in their file."""
    by_file: dict[str, dict[str, Function]] = {}
    nodes = {}
    for test in tests:
        path, name = function_of(test)
        if path not in by_file:
            by_file[path] = functions_in(files.get(path, b"").decode(errors="replace"))
        if name in by_file[path]:
            nodes[test] = by_file[path][name]
    return nodes


def without_tests(files: Mapping[str, bytes], tests: Iterable[str]) -> dict[str, bytes]:
    """Returns the files without the functions of some tests; `pass` stays where a class would become empty.

    A file whose functions are not found is removed.
    """
    removed: dict[str, set[str]] = {}
    for test in tests:
        path, name = function_of(test)
        removed.setdefault(path, set()).add(name)
    result = dict(files)
    for path, names in removed.items():
        if path not in files:
            continue
        text = _remove_functions(files[path].decode(errors="surrogateescape"), names)
        if text is None:
            del result[path]
        else:
            result[path] = text.encode(errors="surrogateescape")
    return result


def _remove_functions(source: str, names: set[str]) -> str | None:
    functions = functions_in(source)
    if not names <= functions.keys():
        return None  # tests of a base class or made by code
    lines = source.splitlines(keepends=True)
    spans = [_find_span(functions[name]) for name in names]
    for first, last in sorted(spans, reverse=True):
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        # A class needs a body, and so does the file's `if`.
        lines[first:last] = [f"{indent}pass\n"] if indent else []
    text = "".join(lines)
    return text if parse_python(text) is not None else None


def _find_span(node: Function) -> tuple[int, int]:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first - 1, node.end_lineno or first
