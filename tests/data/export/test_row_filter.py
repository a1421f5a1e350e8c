"""Conditions on rows: what they compare, and what they refuse."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.export.row_filter import RowFilter

ROW = {"acc": 1.0, "reward": None, "step": 3, "env": "math", "tools": ["python"], "numbers": {"reward/format": 0.5}}


def passes(text: str) -> bool:
    return RowFilter(text, columns=frozenset(ROW)).passes(ROW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acc >= 1", True),
        ("acc == 1 and step > 3", False),
        ("acc < 1 or step in (1, 3)", True),
        ("not acc < 1", True),
        ("1 < step <= 3", True),
        ("0 < step < 3", False),
        ("env != 'text'", True),
        ("'python' in tools and 'search' not in tools", True),
        ("numbers['reward/format'] * 2 - 1 >= -acc", True),
        (" acc == 1 ", True),
        ("acc", False),  # only the truth passes, not a number
    ],
)
def test_a_condition_compares_columns(text: str, expected: bool) -> None:
    assert passes(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reward >= 0", False),
        ("not reward >= 0", False),
        ("reward + 1 > 0", False),
        ("reward >= 0 or acc == 1", True),
        ("reward >= 0 and acc == 1", False),
        ("not (reward >= 0 and acc == 0)", True),
        ("numbers['none'] > 0", False),
        ("not numbers['none'] > 0", False),
    ],
)
def test_an_unknown_value_makes_a_condition_unknown_unless_the_rest_decides(text: str, expected: bool) -> None:
    assert passes(text) is expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accuracy > 1", "'accuracy'"),
        ("acc >", "acc >"),
        ("", "a condition compares columns"),
        ("__import__('os').system('x')", "is not supported"),
        ("env.upper() == 'A'", "is not supported"),
        ("[acc for acc in tools]", "is not supported"),
        ("(lambda: 1)() == 1", "is not supported"),
        ("numbers[step] > 1", "is not supported"),
        ("2 ** 99999999 > 1", "is not supported"),
        ("acc is None", "is not supported"),
        ("acc >= 1; acc", "a condition compares columns"),
        ("acc == b'x'", "is not supported"),
    ],
)
def test_everything_else_is_refused_before_a_row_is_read(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RowFilter(text, columns=frozenset(ROW))


@pytest.mark.parametrize("text", ["env > 1", "acc / (step - 3) > 1", "1 in acc"])
def test_values_that_cannot_be_compared_are_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="types"):
        passes(text)
