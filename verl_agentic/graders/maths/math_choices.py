r"""Splits the letter of a multiple-choice answer from its text: `\text{(C)}\ 12`, `C. 12`, `(C)`."""

from __future__ import annotations

import re

_LABEL = re.compile(
    r"(?:(?P<upright>\\text\s*\{)\s*)?(?:\(\s*(?P<letter>[A-J])\s*\)|(?P<marked>[A-J])\s*(?:\)|[.:](?=[\s}\\]|$))|(?P<alone>[A-J])(?=\s*\}|$))"
    r"[.:]?\s*(?P<close>\})?\s*[.:]?\s*(?P<rest>.*)",
    re.DOTALL,
)
_OTHER_CHOICE = re.compile(r"\(?(?<![A-Za-z])[A-J]\)|(?<![A-Za-z])(?:or|and|not|but|[B-HJ])(?![A-Za-z(])")
_LETTERS = re.compile(r"\(?[A-H]\)?(?:(?:\s*,)?\s*(?:and\s*)?\(?[A-H]\)?)+")


def are_same_choices(answer: str, truth: str) -> bool:
    """Returns whether two texts name the same choices, at least two: `AC` and `(C), (A)`."""
    is_letters = _LETTERS.fullmatch(truth) and _LETTERS.fullmatch(answer)
    return bool(is_letters) and sorted(re.findall("[A-H]", answer)) == sorted(re.findall("[A-H]", truth))


def split_choice(text: str) -> tuple[str, str]:
    """Returns letter and text of a choice that `math_notation.tidy` returned; an empty letter for another text.

    A text that names a second choice is none.
    """
    label = _LABEL.fullmatch(text)
    if label is None:
        return "", text
    rest = label["rest"]
    if label["upright"] and not label["close"]:
        rest = f"\\text{{{rest}"
    elif label["close"] and not label["upright"]:
        return "", text
    if _OTHER_CHOICE.search(rest):
        return "", text
    return label["letter"] or label["marked"] or label["alone"], rest.strip()
