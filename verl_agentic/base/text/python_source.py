"""Parses Python source of unknown origin, from any thread."""

from __future__ import annotations

import ast
import threading
import warnings

_REFUSALS = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)
_LOCK = threading.Lock()


def parse_python(source: str, *, compiles: bool = False) -> ast.Module | None:
    """Returns the tree of a source, or None if it is no Python.

    Args:
        source: what may be Python.
        compiles: also return None if the source parses and does not compile, as `return` outside of a function.
    """
    try:
        return _parse_source(source, compiles=compiles)
    except _REFUSALS:
        return None


def error_line(source: str) -> int | None:
    """Returns the line of the first syntax error, 1 if the source cannot be parsed for another reason, else None."""
    try:
        _parse_source(source, compiles=False)
    except _REFUSALS as error:
        return getattr(error, "lineno", None) or 1
    return None


def _parse_source(source: str, *, compiles: bool) -> ast.Module:
    """Parses in one thread at a time.

    CPython 3.11 counts the recursion of all threads together, and raises `SystemError` in one that is interrupted.
    `catch_warnings` changes the filters of all threads, too.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the style of the source
        tree = ast.parse(source)
        if compiles:
            compile(source, "answer.py", "exec", dont_inherit=True)
    return tree
