"""The argument of tools that take code: a text, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from verl_agentic.base.types import ToolResult
from verl_agentic.tools.python import read_code


def test_code_is_returned_as_it_is() -> None:
    assert read_code({"code": "print(1)\n"}) == "print(1)\n"


@pytest.mark.parametrize("arguments", [{}, {"code": 7}, {"code": "x", "timeout": 3}, {"source": "x"}])
def test_everything_else_is_answered_and_counted_as_wrong_arguments(arguments: Mapping[str, Any]) -> None:
    text = 'Error: the arguments must be {"code": "<string>"}'
    assert read_code(arguments) == ToolResult(text, is_error=True, error_kind="wrong_arguments")
