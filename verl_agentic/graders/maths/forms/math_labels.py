"""Dates, times and telephone numbers: digits with separators that name something, and are no arithmetic."""

from __future__ import annotations

import re

_DATE = r"\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2\d{4}"
_TELEPHONE = r"(?:\+?\d{1,2}[- ])?(?:\d{3}-)?\d{3}-\d{4}"
_PADDED = r"(?=.*(?<!\d)0\d)\d+(?:[-:]\d+)+"
_LABEL = re.compile(rf"{_DATE}|{_TELEPHONE}|{_PADDED}")
_TIME = re.compile(r"(?:1?\d|2[0-4]):[0-5]\d")
_HALF_OF_DAY = re.compile(r"[ap]\.?\s*m\b", re.IGNORECASE)
_PAIR = re.compile(r"(\d+)(?:\s*:|\s+to\s)\s*(\d+)")
_CLOCK = re.compile(r"\d{1,2}:\d\d.*")


def compare_labels(answer: str, truth: str) -> bool | None:
    """Returns whether two labels are the same, False for a label and something else, or None without a label.

    `2024-01-02`, `555-1234` and `9:05` are labels. A truth such as `12:30`, with at most 24 before the colon and two
    digits below 60 after it, is a time: `2/5` and `6:15` are wrong. It may also be a ratio, so `12 : 30` and `12 to 30`
    are right. All other ratios are calculated, also `3:5` and `12 : 30` with spaces.
    """
    if _TIME.fullmatch(truth) and not _HALF_OF_DAY.search(answer):
        pair = _PAIR.fullmatch(answer)
        return pair is not None and list(map(int, pair.groups())) == list(map(int, truth.split(":")))
    if not (_LABEL.fullmatch(answer) or _LABEL.fullmatch(truth)):
        return None
    if _CLOCK.fullmatch(answer) and _CLOCK.fullmatch(truth):
        return None  # `9:05` and `9:05 p.m.` are compared as times
    return _parts_of(answer) == _parts_of(truth)


def _parts_of(text: str) -> tuple[object, ...]:
    """Returns the kind of separator and the numbers; `2024-01-02` and `2024/1/2` are the same."""
    numbers = re.findall(r"\d+", text)
    kind = ":" if ":" in text else "-" if re.fullmatch(r"[\d\s()+/.-]+", text) else text
    return kind, tuple(map(int, numbers))
