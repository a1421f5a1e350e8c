"""Compares the output of a program, or the result of a function, with the expected one.

Integers are compared exactly: `5.0` is 5, `999999000.5` is not 999999003. The tolerance applies only if the expected
number is not an integer. Python's limit of digits does not apply.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import load_address

CHECKERS = ("lines", "tokens", "exact", "ignore_case")
TOLERANCE = 1e-6
"""As in testlib's `rcmp6` and most problem statements."""

Checker = Callable[[str, str, str], bool]
"""Input, found output, expected output -> whether the output is right."""

# No leading zeros and no plus sign: `007` and binary digits that start with 0 are texts.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_CONTEXT = Context(prec=40, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def same_token(output: str, expected: str, tolerance: float = TOLERANCE) -> bool:
    """Returns whether two words are the same text or number.

    An expected integer must match exactly. Other numbers may differ by `tolerance * max(1, |expected|)`. `nan` and
    `inf` are texts.
    """
    if output == expected:
        return True
    if not (_NUMBER.fullmatch(output) and _NUMBER.fullmatch(expected)):
        return False
    number, expected_number = Decimal(output, _CONTEXT), Decimal(expected, _CONTEXT)
    if _INTEGER.fullmatch(expected) or not tolerance:
        return number == expected_number
    allowed = _CONTEXT.multiply(Decimal(tolerance), max(Decimal(1), _CONTEXT.abs(expected_number)))
    return _CONTEXT.abs(_CONTEXT.subtract(number, expected_number)) <= allowed


def same_output(output: str, expected: str, *, checker: str = "lines", tolerance: float = TOLERANCE) -> bool:
    """Returns whether a printed text matches the expected one.

    Args:
        checker: `lines` compares line by line and word by word, without empty lines and extra space. `tokens` also
            ignores line breaks. `ignore_case` is `lines` without case. `exact` compares characters, except space at the
            ends of lines and of the text.
        tolerance: see `same_token`; unused by `exact`.
    """
    if checker == "exact":
        return _right_stripped(output) == _right_stripped(expected)
    if checker == "ignore_case":
        output, expected = output.casefold(), expected.casefold()
    if checker == "tokens":
        return _same_words(output.split(), expected.split(), tolerance)
    lines, expected_lines = _strip_lines(output), _strip_lines(expected)
    return len(lines) == len(expected_lines) and all(
        line == expected_line or _same_words(line.split(), expected_line.split(), tolerance)
        for line, expected_line in zip(lines, expected_lines, strict=True)
    )


def same_value(output: str, expected: str, *, tolerance: float = TOLERANCE) -> bool:
    """Returns whether two JSON texts have the same value.

    Numbers, also nested ones, are compared as by `same_token`. `true` is not 1, and a text is not a number.
    """
    try:
        return _same_json(_load_json(output), _load_json(expected), tolerance)
    except (ValueError, RecursionError):
        return False


@functools.cache
def load_checker(name: str) -> Checker | None:
    """Loads a user's checker by its address; None for a built-in name. Raises ConfigError if it does not exist."""
    if name in CHECKERS:
        return None
    if ":" not in name:
        raise ConfigError(
            f"checker must be one of {CHECKERS}, package.module:function or path/file.py:function, got {name!r}"
        )
    return load_address(name, what="checker")


def _same_words(words: Sequence[str], expected: Sequence[str], tolerance: float) -> bool:
    return len(words) == len(expected) and all(
        same_token(word, expected_word, tolerance)
        for word, expected_word in zip(words, expected, strict=True)
        if word != expected_word
    )


def _strip_lines(text: str) -> list[str]:
    return [line for raw in text.split("\n") if (line := raw.strip())]


def _right_stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip()


class _Number(str):
    """A number of a JSON text, as written."""


def _load_json(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _same_json(value: Any, expected: Any, tolerance: float) -> bool:
    if type(value) is not type(expected):
        return False
    if isinstance(expected, _Number):
        return same_token(value, expected, tolerance)
    if isinstance(expected, list):
        return len(value) == len(expected) and all(
            _same_json(item, expected_item, tolerance) for item, expected_item in zip(value, expected, strict=True)
        )
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _same_json(value[key], expected[key], tolerance) for key in expected
        )
    return value == expected
