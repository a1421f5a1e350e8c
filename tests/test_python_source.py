"""Python source is parsed from any thread, and what is no Python is no error."""

from __future__ import annotations

import ast
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from verl_agentic.base.text import python_source
from verl_agentic.base.text.python_source import error_line, parse_python


@pytest.mark.parametrize(
    ("source", "line"),
    [("x = 1\n", None), ("return 1", None), ("a\nb c", 2), ("(" * 500, 1), ("\0", 1), ("x" * 9 + "\ud800", 1)],
)
def test_a_source_that_does_not_parse_has_a_line_and_no_tree(source: str, line: int | None) -> None:
    assert error_line(source) == line
    assert (parse_python(source) is None) == (line is not None)


def test_a_source_that_parses_need_not_compile() -> None:
    assert parse_python("return 1") is not None and parse_python("return 1", compiles=True) is None
    assert parse_python("x = 1", compiles=True) is not None


def test_no_two_threads_parse_at_once_and_filters_of_warnings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, together = threading.Lock(), []

    def parse(source: str) -> Any:
        together.append(not busy.acquire(timeout=0))
        threading.Event().wait(0.01)
        busy.release()
        return compile(source, "x", "exec", ast.PyCF_ONLY_AST)

    filters = list(warnings.filters)
    monkeypatch.setattr(python_source.ast, "parse", parse)
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(parse_python, ["x = '\\d'"] * 12))
    assert not any(together) and warnings.filters == filters
