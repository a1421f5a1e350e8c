"""GAIA's quasi-exact match: numbers, lists and strings, each in a normal form.

Paper: https://arxiv.org/abs/2311.12983 (section 3.3). Deviation: lists may be in any case with any spaces, as strings.
"""

from __future__ import annotations

import math
import re

_SEPARATORS = re.compile(r"[,;]")
_MARKER = re.compile(r"final answer\s*:", re.IGNORECASE)
_MAX_CHARS = 10_000


def final_part(answer: str) -> str:
    """Returns the text after the last `FINAL ANSWER:`, or all of it."""
    return _MARKER.split(answer)[-1].strip()


def quasi_match(answer: str, truth: str) -> bool:
    """Returns whether an answer equals the right one.

    The right one decides how both are read: as a number (without `$`, `%` and thousands separators), as a list with
    commas or semicolons, whose elements are compared in order, or as a string without case, spaces and punctuation.
    """
    answer, truth = answer.strip(), truth.strip()
    if not answer or len(answer) > len(truth) + _MAX_CHARS:
        return False
    if (number := _parse_number(truth, plain=True)) is not None:
        return _parse_number(answer) == number
    if not _SEPARATORS.search(truth):
        return bool(_keep_letters(truth)) and _keep_letters(answer) == _keep_letters(truth)
    answer_parts, truth_parts = ([part.strip() for part in _SEPARATORS.split(text)] for text in (answer, truth))
    return len(answer_parts) == len(truth_parts) and all(
        _same_part(*pair) for pair in zip(answer_parts, truth_parts, strict=True)
    )


def _same_part(answer: str, truth: str) -> bool:
    number = _parse_number(truth, plain=True)
    return _parse_number(answer) == number if number is not None else _remove_spaces(answer) == _remove_spaces(truth)


def _parse_number(text: str, *, plain: bool = False) -> float | None:
    """Returns the number of a text, or None. A plain one has no currency, per cent sign or thousands separators."""
    try:
        number = float(text if plain else re.sub(r"[$%,\s]", "", text))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _keep_letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def _remove_spaces(text: str) -> str:
    return re.sub(r"\s", "", text).lower()
