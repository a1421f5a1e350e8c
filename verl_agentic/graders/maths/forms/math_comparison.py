"""Compares two structures part by part."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verl_agentic.graders.maths.forms.math_expressions import Node, UnreadableError, read_expression
from verl_agentic.graders.maths.forms.math_regions import Structure, as_region, merged_pieces, real_value, scalars_of
from verl_agentic.graders.maths.forms.math_scalars import are_scalars_equal, is_scalar_evaluated
from verl_agentic.graders.maths.forms.math_values import are_proportional

MAX_PARTS = 64
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


def are_equal(answer: Structure, truth: Structure) -> bool:
    """Returns whether two structures are equal."""
    if "named" in (answer.kind, truth.kind):
        return _are_named_equal(answer, truth)
    if "region" in (answer.kind, truth.kind):
        region, other = as_region(answer), as_region(truth)
        return region is not None and other is not None and _are_regions_equal(region, other)
    if "congruence" in (answer.kind, truth.kind):
        is_same_name = answer.label == truth.label or not (answer.label and truth.label)
        return is_same_name and answer.kind == truth.kind and _are_congruent(answer.parts, truth.parts)
    if "equation" in (answer.kind, truth.kind):
        return _are_equations_equal(answer, truth)
    if "collection" in (answer.kind, truth.kind):
        return _are_collections_equal(_list_items(answer), truth.parts if truth.kind == "collection" else (truth,))
    if {answer.kind, truth.kind} == {"table", "tuple"}:
        answer, truth = _as_vector(answer), _as_vector(truth)
    if answer.kind != truth.kind or len(answer.parts) != len(truth.parts):
        return False
    if answer.kind == "scalar":
        return are_scalars_equal(answer.parts[0], truth.parts[0])
    if answer.kind == "relation":
        return _are_relations_equal(answer, truth)
    if answer.kind == "table" and answer.label != truth.label:
        return False
    if answer.kind == "tuple" and answer.label != truth.label and "[" in answer.label + truth.label:
        return False
    return all(map(are_equal, answer.parts, truth.parts))


def is_evaluated(structure: Structure) -> bool:
    """Returns whether no scalar of a structure can be evaluated further."""
    return all(map(is_scalar_evaluated, scalars_of(structure)))


def _are_congruent(first: Sequence[str], second: Sequence[str]) -> bool:
    """Returns whether two pairs of residue and modulus name the same class."""
    if not are_scalars_equal(first[1], second[1]):
        return False
    residues, modulus = [real_value(pair[0]) for pair in (first, second)], real_value(first[1])
    if modulus and all(isinstance(value, Fraction) for value in (*residues, modulus)):
        return (residues[0] - residues[1]) % modulus == 0
    return are_scalars_equal(first[0], second[0])


def _as_vector(structure: Structure) -> Structure:
    """Returns a matrix of one row or one column as a tuple."""
    rows = structure.parts
    if structure.kind != "table" or (len(rows) > 1 and any(len(row.parts) > 1 for row in rows)):
        return structure
    return Structure("tuple", tuple(part for row in rows for part in row.parts), "()")


def _are_regions_equal(first: Structure, second: Structure) -> bool:
    if first.label and second.label and first.label != second.label:
        return False
    is_known = all(bound.value is not None for region in (first, second) for piece in region.parts for bound in piece)
    first_pieces, second_pieces = (
        (merged_pieces(first), merged_pieces(second)) if is_known else (list(first.parts), list(second.parts))
    )
    return len(first_pieces) == len(second_pieces) and all(
        bound.is_closed == other_bound.is_closed and are_scalars_equal(bound.text, other_bound.text)
        for pair in zip(first_pieces, second_pieces, strict=True)
        for bound, other_bound in zip(*pair, strict=True)
    )


def _are_named_equal(answer: Structure, truth: Structure) -> bool:
    if answer.kind == truth.kind == "named":
        return answer.label == truth.label and are_equal(answer.parts[0], truth.parts[0])
    named, other = (answer, truth) if answer.kind == "named" else (truth, answer)
    if other.kind == "equation":
        return _are_equations_equal(answer, truth)
    if other.kind == "collection" and len(other.parts) == 1:
        other = other.parts[0]
    return are_equal(named.parts[0], other) if named is answer else are_equal(other, named.parts[0])


def _get_sides(structure: Structure) -> Sequence[str] | None:
    if structure.kind == "named" and structure.parts[0].kind == "scalar":
        return structure.label, structure.parts[0].parts[0]
    return structure.parts if structure.kind == "equation" else None


def _subtract_sides(sides: Sequence[str]) -> Node:
    first, second = map(read_expression, sides)
    return Node("add", (first, Node("neg", (second,))))


def _are_equations_equal(answer: Structure, truth: Structure) -> bool:
    pairs = [_get_sides(answer), _get_sides(truth)]
    try:
        return None not in pairs and are_proportional(*(_subtract_sides(sides) for sides in pairs if sides)) != 0
    except UnreadableError:
        return False


def _are_relations_equal(answer: Structure, truth: Structure) -> bool:
    for parts, ops in (
        (answer.parts, answer.label.split()),
        (answer.parts[::-1], [FLIPPED[op] for op in answer.label.split()[::-1]]),
    ):
        if ops == truth.label.split() and all(map(are_scalars_equal, parts, truth.parts)):
            return True
    if len(answer.parts) != 2:
        return False
    try:
        sign = are_proportional(_subtract_sides(answer.parts), _subtract_sides(truth.parts))
    except UnreadableError:
        return False
    return sign != 0 and (answer.label if sign > 0 else FLIPPED[answer.label]) == truth.label


def _list_items(structure: Structure) -> tuple[Structure, ...]:
    is_list = structure.kind == "collection" or (structure.kind == "tuple" and structure.label in ("[]", ""))
    return structure.parts if is_list else (structure,)


def _are_collections_equal(answers: Sequence[Structure], truths: Sequence[Structure]) -> bool:
    """Returns whether each item equals one of the other side; a set of one number is not the number."""
    if max(len(answers), len(truths)) > MAX_PARTS:
        return False
    verdicts = [
        [(answer.label == "set") == (truth.label == "set") and are_equal(answer, truth) for truth in truths]
        for answer in answers
    ]
    return all(map(any, verdicts)) and all(map(any, zip(*verdicts, strict=True)))
