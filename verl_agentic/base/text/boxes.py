r"""Finds the boxed answer in a text: `\boxed{42}`, `\fbox{42}`, `\boxed 42`; several boxes in a row are one list."""

from __future__ import annotations

import re
from typing import NamedTuple

_BRACES = re.compile(
    r"\\[\\{}]|\\(?:boxed|fbox|framebox)\s*(?:\{|(?P<bare>-?\d[\d,./]*(?<![.,])|[A-Z](?![A-Za-z])|\\(?:frac|sqrt|pi)(?![a-zA-Z])[^$\n]*))"
    r"|\{|\}"
)
_BETWEEN = re.compile(
    r"(?:[\s$,;.&*~\u3001\uff0c\u548c\u6216]|\\[()\[\],;: ]|\\q?quad|\\text\s*\{\s*,?\s*(?:and|or)\s*\}"
    r"|(?<![A-Za-z])(?:and|or)(?![A-Za-z]))*"
    r"(?P<name>[A-Za-z](?:_\{?\w\}?)?\s*=)?[\s$]*"
)
_NAME = re.compile(r"(?<![A-Za-z])([A-Za-z](?:_\{?\w\}?)?\s*=)[\s$]*$")
_MAX_BETWEEN = 60


class _Box(NamedTuple):
    start: int
    inside: int
    inside_end: int
    end: int


def last_boxed(text: str) -> str | None:
    r"""Returns the content of the last complete box, or None; takes linear time."""
    boxes = _complete_boxes(text)
    return text[boxes[-1].inside : boxes[-1].inside_end].strip() if boxes else None


def answer_in_boxes(text: str) -> str | None:
    r"""Returns the content of the last row of complete boxes, or None; takes linear time.

    Boxes with nothing but commas, `and`, `or` and names between them are one answer: `\boxed{1}, \boxed{2}` is `1, 2`.
    """
    boxes = _complete_boxes(text)
    if not boxes:
        return None
    row = [boxes[-1]]
    names: list[str] = []
    for box in reversed(boxes[:-1]):
        between = text[box.end : row[-1].start]
        separator = _BETWEEN.fullmatch(between) if len(between) <= _MAX_BETWEEN else None
        if separator is None:
            break
        row.append(box)
        names.append(separator["name"] or "")
    row.reverse()
    contents = [text[box.inside : box.inside_end].strip() for box in row]
    if not all(contents):
        return ""
    if len(set(contents)) == 1:
        return contents[-1]
    first_name = _NAME.search(text[max(0, row[0].start - _MAX_BETWEEN) : row[0].start])
    names = [first_name[1] if first_name else "", *reversed(names)]
    if not all(names):
        names = [""] * len(row)
    return ", ".join(dict.fromkeys(f"{name} {content}".strip() for name, content in zip(names, contents, strict=True)))


def _complete_boxes(text: str) -> list[_Box]:
    """Returns the innermost boxes; the span of each is that of the outermost box around it."""
    boxes: list[_Box] = []
    opened: list[tuple[int, int]] = []
    for brace in _BRACES.finditer(text):
        if brace["bare"] is not None:
            boxes.append(_Box(brace.start(), brace.start("bare"), brace.end(), brace.end()))
        elif brace[0].endswith("{") and len(brace[0]) != 2:
            opened.append((brace.start(), brace.end()))
        elif brace[0] == "}" and opened:
            start, inside = opened.pop()
            if inside - start == 1:
                continue
            if boxes and boxes[-1].inside > inside:
                boxes[-1] = boxes[-1]._replace(start=start, end=brace.end())
            else:
                boxes.append(_Box(start, inside, brace.start(), brace.end()))
    return boxes
