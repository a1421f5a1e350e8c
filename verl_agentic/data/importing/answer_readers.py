"""Readers of answers: a number behind `####`, a box in a solution, a plain value, golden answers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.data.making.maker import RefusedError

_NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?|\.\d+)")


def read_value(value: Any, record: Mapping[str, Any]) -> str:
    """Returns a text or a number as text; 204.0 is 204, because a column with gaps holds floats."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    text = str(value).strip() if isinstance(value, str) or (is_number and not isinstance(value, bool)) else ""
    if not text:
        raise RefusedError(f"no answer: {str(value)[:80]!r}")
    return text


def read_hashes(value: Any, record: Mapping[str, Any]) -> str:
    """Returns the number behind the last `####`, without commas; see `ANS_RE` of GSM8K's `dataset.py`."""
    _, mark, tail = str(value or "").rpartition("####")
    number = tail.strip().replace(",", "").removesuffix(".")
    if not mark or not _NUMBER.fullmatch(number):
        raise RefusedError(f"no number behind ####: {str(value)[-80:]!r}")
    return number


def read_box(value: Any, record: Mapping[str, Any]) -> str:
    r"""Returns the content of the last `\boxed{}` of a solution, as MATH's authors do."""
    answer = last_boxed(str(value or ""))
    if not answer:
        raise RefusedError(rf"no \boxed{{}} in the solution: {str(value)[-80:]!r}")
    return answer


def read_golden_answers(value: Any, record: Mapping[str, Any]) -> str | list[str]:
    """Returns one or several accepted answers; repeated and empty ones are left out."""
    answers = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = list(dict.fromkeys(text.strip() for text in answers if isinstance(text, str) and text.strip()))
    if not texts:
        raise RefusedError(f"no answer: {str(value)[:80]!r}")
    return texts[0] if len(texts) == 1 else texts
