"""Parts of an answer, and regions: unions of intervals with exact bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from verl_agentic.graders.maths.forms.math_expressions import UnreadableError, names_of, read_expression
from verl_agentic.graders.maths.forms.math_scalars import split_scalar
from verl_agentic.graders.maths.forms.math_values import NoValueError, number_of

_DIGITS = 100


@dataclass(frozen=True)
class Bound:
    """An end of an interval; the text of an infinite one is its sign."""

    text: str
    is_closed: bool
    value: Any


@dataclass(frozen=True)
class Structure:
    """Parts of an answer.

    `kind`: `scalar` (one text), `named` (name, structure), `collection` (unordered), `tuple`, `table` (rows), `region`
    (pairs of bounds), `equation` (two texts), `relation` (signs in `label`), `congruence` (residue, modulus).
    """

    kind: str
    parts: tuple[Any, ...]
    label: str = ""


def scalars_of(structure: Structure) -> Iterator[str]:
    """Yields the texts of all scalars."""
    for part in structure.parts:
        if isinstance(part, Structure):
            yield from scalars_of(part)
        elif isinstance(part, tuple):
            yield from (bound.text for bound in part if isinstance(bound, Bound) and "\\infty" not in bound.text)
        else:
            yield part


def infinite(sign: str) -> Bound:
    """Returns the bound at infinity of a sign, `-` or empty."""
    return Bound(f"{sign}\\infty", False, mpmath.mpf(f"{sign}inf"))


def real_value(text: str) -> Any:
    """Returns the value of a text without variables, or None."""
    try:
        tree = read_expression(split_scalar(text)[0])
        value = None if names_of(tree) else number_of(tree)
    except (UnreadableError, NoValueError):
        return None
    return None if value is None or mpmath.im(to_mp(value)) else value


def to_mp(value: Any) -> Any:
    """Returns a fraction as a number of mpmath; others unchanged."""
    with mpmath.workdps(_DIGITS):
        return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def as_region(structure: Structure) -> Structure | None:
    """Returns a pair in brackets as an interval and numbers as points; None for other structures."""
    if structure.kind == "region":
        return structure
    if structure.kind in ("scalar", "collection"):
        points = [Bound(text, True, real_value(text)) for text in scalars_of(structure)]
        return None if any(p.value is None for p in points) else Structure("region", tuple((p, p) for p in points))
    texts = [part.parts[0] for part in structure.parts if isinstance(part, Structure) and part.kind == "scalar"]
    if structure.kind != "tuple" or len(structure.parts) != 2 or len(texts) != 2 or not structure.label:
        return None
    low, high = (_bound_of(text, bracket) for text, bracket in zip(texts, structure.label, strict=True))
    return Structure("region", ((low, high),)) if is_before(low, high) else None


def _bound_of(text: str, bracket: str) -> Bound:
    value = real_value(text)
    if value is not None and mpmath.isinf(to_mp(value)):
        return infinite("-" if value < 0 else "")
    return Bound(text, bracket in "[]", value)


def is_before(low: Bound, high: Bound) -> bool:
    """Returns whether an interval with these bounds has a number, as far as their values are known."""
    if low.value is None or high.value is None:
        return True
    low_value, high_value = to_mp(low.value), to_mp(high.value)
    return bool(low_value < high_value or (low_value == high_value and low.is_closed and high.is_closed))


def join_regions(structures: list[Structure], *, is_union: bool) -> Structure | None:
    """Returns the union or intersection; None if a part is no region, or none is more than points."""
    if not any(part.kind in ("region", "tuple") for part in structures):
        return None
    regions = [as_region(part) for part in structures]
    names = {region.label for region in regions if region is not None} - {""}
    if None in regions or len(names) > 1:
        return None
    pieces = [region.parts for region in regions if region is not None]
    if any(bound.value is None for region in pieces for piece in region for bound in piece):
        return Structure("region", sum(pieces, ())) if is_union else None
    parts = sum(pieces, ()) if is_union else pieces[0]
    if not is_union:
        for others in pieces[1:]:
            parts = tuple(
                piece for interval in parts for other in others if (piece := _intersect_intervals(interval, other))
            )
    return Structure("region", parts, next(iter(names), ""))


def _intersect_intervals(interval: tuple[Bound, Bound], other: tuple[Bound, Bound]) -> tuple[Bound, Bound] | None:
    low = max(interval[0], other[0], key=lambda bound: (to_mp(bound.value), not bound.is_closed))
    high = min(interval[1], other[1], key=lambda bound: (to_mp(bound.value), bound.is_closed))
    return (low, high) if is_before(low, high) else None


def remove_region(structure: Structure, removed: Structure) -> Structure | None:
    """Returns a region without another one; None if one of the two is something else or has unknown bounds."""
    region, holes = as_region(structure), as_region(removed)
    if region is None or holes is None:
        return None
    parts = region.parts
    if any(bound.value is None for pieces in (parts, holes.parts) for piece in pieces for bound in piece):
        return None
    for low, high in holes.parts:
        ends = [Bound(bound.text, not bound.is_closed, bound.value) for bound in (low, high)]
        sides = ((infinite("-"), ends[0]), (ends[1], infinite("")))
        parts = tuple(piece for part in parts for side in sides if (piece := _intersect_intervals(part, side)))
    return Structure("region", parts, region.label)


def merged_pieces(region: Structure) -> list[tuple[Bound, Bound]]:
    """Returns the disjoint intervals of a region in order; all bounds must have values."""
    pieces = sorted(region.parts, key=lambda piece: (to_mp(piece[0].value), not piece[0].is_closed))
    merged: list[tuple[Bound, Bound]] = []
    for low, high in pieces:
        if merged:
            last = merged[-1][1]
            gap = to_mp(low.value) - to_mp(last.value)
            if gap < 0 or (gap == 0 and (low.is_closed or last.is_closed)):
                longest = max(last, high, key=lambda bound: (to_mp(bound.value), bound.is_closed))
                merged[-1] = (merged[-1][0], longest)
                continue
        merged.append((low, high))
    return merged
