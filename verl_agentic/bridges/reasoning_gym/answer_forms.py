"""Normal forms of answers: equal for spellings of one answer, None for a text that has not the form of an answer."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+")
_SCIENTIFIC = re.compile(rf"(?:{_NUMBER.pattern})(?:e[-+]?\d{{1,3}})?", re.I)
_DURATION = re.compile(r"(?:(-?\d+) days?)?(?:, ?)?(?:(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))?)?")
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def plain(text: str) -> str:
    """Returns the lines of a text without blank lines, repeated spaces and spaces beside commas and brackets."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return re.sub(r" ?([,()\[\]{}]) ?", r"\1", "\n".join(filter(None, lines)))


def common_form(text: str) -> Hashable:
    """Returns the form of most answers: a number, data as JSON, or else the plain text."""
    number = number_of(text)
    if number is not None:
        return number
    data = data_of(text)
    return plain(text) if data is None else json.dumps(data, sort_keys=True)


def number_of(text: str, *, is_scientific: bool = False) -> Decimal | None:
    """Returns the number that a text is, with or without `,` between thousands, or None."""
    text = text.strip()
    pattern = _SCIENTIFIC if is_scientific else _NUMBER
    return Decimal(text.replace(",", "")) if pattern.fullmatch(text) else None


def numbers_of(text: str, *, separator: str = ",") -> list[Decimal] | None:
    """Returns the numbers of a list without brackets, or None if a part is no number."""
    numbers = [number_of(part) for part in text.split(separator)]
    return None if None in numbers else [number for number in numbers if number is not None]


def data_of(text: str) -> Any:
    """Returns a list or mapping in JSON, also with single quotes, or None. A key that occurs twice is no data."""
    text = text.strip()
    if text[:1] not in ("[", "{"):
        return None
    for spelling in (text, text.replace("'", '"')):
        try:
            return json.loads(spelling, object_pairs_hook=_unique_keys)
        except (ValueError, RecursionError):
            continue
    return None


def list_of_numbers(text: str) -> Hashable:
    """Returns the numbers of a list in brackets, each with or without quotes, or None."""
    data = data_of(text)
    numbers = [number_of(str(item)) for item in data] if isinstance(data, list) else [None]
    return None if None in numbers else tuple(numbers)


def any_order(text: str) -> Hashable:
    """Returns nested lists of texts without their order, or None."""
    data = data_of(text)
    if not isinstance(data, list) or not all(isinstance(item, list) for item in data):
        return None
    return json.dumps(sorted(sorted(map(json.dumps, item)) for item in data))


def lists_in_any_order(text: str) -> Hashable:
    """Returns a list of lists, whose order counts, without the order of the outer one, or None."""
    data = data_of(text)
    if not isinstance(data, list) or not all(isinstance(item, list) for item in data):
        return None
    return json.dumps(sorted(map(json.dumps, data)))


def fraction_form(text: str) -> Hashable:
    """Returns `a/b` of a fraction, also in LaTeX, or None."""
    text = text.strip().strip("$").strip()
    match = re.fullmatch(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}", text)
    match = match or re.fullmatch(r"(\d+)\s*/\s*(\d+)", text)
    return match and (int(match[1]), int(match[2]))


def complex_form(text: str) -> Hashable:
    """Returns the real and the imaginary part of a number such as `2.5 - 3i`, or None."""
    text = re.sub(r"\s", "", text.strip())
    match = re.fullmatch(r"(?P<re>[-+]?[\d.]+(?!\d*[ij]))?(?:(?P<im>(?:[-+]|^[-+]?)[\d.]*)[ij])?", text)
    if not text or match is None:
        return None
    imaginary = match["im"]
    if imaginary in ("", "+", "-"):
        imaginary += "1"
    parts = [number_of(part or "0") for part in (match["re"], imaginary)]
    return None if None in parts else tuple(parts)


def hexadecimal(text: str) -> Hashable:
    """Returns the value of a hexadecimal number, or None."""
    text = text.strip()
    return int(text, 16) if re.fullmatch(r"[-+]?(?:0x)?[0-9a-f]+", text, re.I) else None


def factors(text: str) -> Hashable:
    """Returns the factors of a product in order of size, or None."""
    parts = [part.strip() for part in re.split(r"[×x*·]", text)]
    return tuple(sorted(map(int, parts))) if all(re.fullmatch(r"\d+", part) for part in parts) else None


def clauses(text: str) -> Hashable:
    """Returns who is what in `A is a knight, and B is a knave.`, in any order, or None."""
    parts = re.split(r",? and |, ?", plain(text).casefold().removesuffix("."))
    matches = [re.fullmatch(r"(\w+) is an? (\w+)", part.removeprefix("and ").strip()) for part in parts]
    return None if None in matches else tuple(sorted(match.groups() for match in matches if match))


def duration(text: str) -> Hashable:
    """Returns days and time of `3 days, 04:05:06`, or None; the hour may have one digit."""
    match = re.fullmatch(
        r"(?:(-?\d+) days?)?(?:, ?)?(?:(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))?)?", plain(text).casefold()
    )
    if match is None or not any(match.groups()):
        return None
    return tuple(None if part is None else Decimal(part) for part in match.groups())


def value_of_sum(text: str) -> Fraction | None:
    """Returns the exact value of an expression of whole numbers with `+ - * / ( )`, or None."""
    try:
        return _evaluate_node(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate_node(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate_node(node.left), _evaluate_node(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate_node(node.operand))
    raise ValueError(f"an expression has whole numbers and + - * / only, got {type(node).__name__}")


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)
