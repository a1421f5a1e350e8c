r"""Reads how an answer is put together: sets, tuples, intervals, matrices, relations, congruences; and compares two.

The parts are texts as `math_notation.tidy` returns them. What is no structure is one scalar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from verl_agentic.rewards.answers.math_expressions import Node, UnreadableError, names_of, read_expression
from verl_agentic.rewards.answers.math_notation import tidy
from verl_agentic.rewards.answers.math_scalars import are_scalars_equal, is_scalar_evaluated, split_scalar
from verl_agentic.rewards.answers.math_values import NoValueError, are_proportional, number_of

_MAX_PARTS = 64
_OR = r"\\l?or(?![a-zA-Z])|\\vee(?![a-zA-Z])|(?<![A-Za-z\\])or(?![A-Za-z])|(?<=\)) *\| *(?=\()"
_AND = r"\\land(?![a-zA-Z])|\\wedge(?![a-zA-Z])|(?<![A-Za-z\\])and(?![A-Za-z])|\\?&(?= |$)"
_COMMA = r",(?!\d{3}(?!\d))|,(?=\d{3}(?:,\d{1,2}(?!\d)|,\d{4}))|;"
_RELATIONS = {"<": "<", ">": ">", "\\lt": "<", "\\gt": ">", "\\le": "<=", "\\leq": "<=", "\\ge": ">=", "\\geq": ">=",
              "\\leqslant": "<=", "\\geqslant": ">=", "<=": "<=", ">=": ">=", "\\leqq": "<=", "\\geqq": ">=",
              "\\ne": "!=", "\\neq": "!=", "!=": "!="}  # fmt: skip
_RELATION = re.compile(r"<=|>=|!=|<|>|\\(?:lt|gt|leqslant|geqslant|leqq|geqq|leq|geq|le|ge|neq|ne)(?![a-zA-Z])")
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_EQUATION = re.compile(r"(?<![<>!:=\\])=(?!=)|\\approx(?![a-zA-Z])")
_NAME = re.compile(
    r"\\?#?(?:\\?[A-Za-z]+'?|\\(?:angle|triangle|overline|vec|text|operatorname|mathcal)\s*\{?[^{}=]*\}?|\|[A-Za-z]+\|"
    r"|\[[A-Z]+\])(?:_\{[\w,]+\}|_\w)?(?:\([\w,]+\))?(?:\s*\^\{\\circ\})?"
)
_SUM_NAME = re.compile(r"[A-Za-z](?:\s*[+*-]?\s*[A-Za-z])+")
_DOMAIN = re.compile(
    r"\(?\s*\\?[A-Za-z](?:_\w)?(?:\s*,\s*[A-Za-z])*\s*\\in\s*(?:\\(?:mathbb|mathbf|text)\s*\{?\s*)?[ZNRCQ]\}?"
    r"\s*(?:[\^_]?\s*\{?[*+]\}?)*\s*\)?"
)
_MEMBER = re.compile(r"\\?[A-Za-z](?:_\w+)?\s*\\in(?![a-zA-Z])\s*")
_BUILDER = re.compile(
    r"\\?\{\s*\(?[A-Za-z](?:\s*\\in\s*(?:\\mathbb\s*\{?)?R\}?)?\)?\s*(?:\||:|\\mid|\\vert|\\colon)(.*?)\\?\}"
)
_SET_NAME = re.compile(r"[A-Z]\s*=\s*(?=\\?[{(\[])")
_TABLE = re.compile(
    r"(?P<label>[^=&\\]*=)?\s*(?:\\text\s*)?(?:\[|\(|\\\{)?\s*\\begin\s*\{(?P<kind>[pbBvV]?matrix|smallmatrix|array|cases)\}"
    r"\s*(?:\{[lcr|]+\})?(?P<body>.*)\\end\s*\{(?P=kind)\}\s*(?:\]|\)|\.)?", re.DOTALL
)  # fmt: skip
_PLAIN_TABLE = re.compile(
    r"(?:np\.|numpy\.|sympy\.)?(?:Matrix|array)\s*\(\s*(\[\s*\[.*\]\s*\])\s*\)|(\[\s*\[.*\]\s*\])", re.DOTALL
)
_ROWS = re.compile(r"\\\\\s*\*?\s*(?:\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|px)\s*\])?|\\cr(?![a-zA-Z])")
_INTERVAL = re.compile(r"(Interval(?:\.(open|Lopen|Ropen))?|FiniteSet|Union|And|Or)\s*\((.*)\)", re.DOTALL)
_MODULUS = re.compile(
    r"(?:\\equiv\s*(?P<more>.*?))?\(?\s*(?:\\[pb]?mod|\\text\s*\{\s*mod\s*\}|\\operatorname\s*\{mod\}|mod)(?![a-zA-Z])"
    r"\s*\{?\s*(?P<modulus>[^{}()]+)\}?\s*\)?$"
)  # fmt: skip
_CLOSING = {"(": ")", "[": "]"}


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


def read_structure(text: str) -> Structure:
    """Returns the structure of a text."""
    text = _without_domain(text.strip())
    for reader in (_read_table, _read_congruence, _read_set, _read_alternatives, _read_list, _read_relation,
                   _read_equation, _read_plus_minus, _read_tuple):  # fmt: skip
        structure = reader(text)
        if structure is not None:
            return structure
    return Structure("scalar", (text,))


def are_equal(answer: Structure, truth: Structure) -> bool:
    """Returns whether two structures are equal."""
    if "named" in (answer.kind, truth.kind):
        return _are_named_equal(answer, truth)
    if "region" in (answer.kind, truth.kind):
        one, other = _as_region(answer), _as_region(truth)
        return one is not None and other is not None and _are_regions_equal(one, other)
    if "congruence" in (answer.kind, truth.kind):
        is_same_name = answer.label == truth.label or not (answer.label and truth.label)
        return is_same_name and answer.kind == truth.kind and all(map(are_scalars_equal, answer.parts, truth.parts))
    if "equation" in (answer.kind, truth.kind):
        return _are_equations_equal(answer, truth)
    if "collection" in (answer.kind, truth.kind):
        return _are_collections_equal(_items(answer), truth.parts if truth.kind == "collection" else (truth,))
    if answer.kind != truth.kind or len(answer.parts) != len(truth.parts):
        return False
    if answer.kind == "scalar":
        return are_scalars_equal(answer.parts[0], truth.parts[0])
    if answer.kind == "relation":
        return _are_relations_equal(answer, truth)
    if answer.kind == "tuple" and answer.label != truth.label and "[" in answer.label + truth.label:
        return False
    return all(map(are_equal, answer.parts, truth.parts))


def scalars_of(structure: Structure) -> Iterator[str]:
    """Yields the texts of all scalars."""
    for part in structure.parts:
        if isinstance(part, Structure):
            yield from scalars_of(part)
        elif isinstance(part, tuple):
            yield from (bound.text for bound in part if isinstance(bound, Bound) and "\\infty" not in bound.text)
        else:
            yield part


def is_evaluated(structure: Structure) -> bool:
    """Returns whether no scalar of a structure can be evaluated further."""
    return all(map(is_scalar_evaluated, scalars_of(structure)))


def _read(text: str) -> Structure:
    return read_structure(tidy(text))


def split_top(text: str, separator: str) -> list[str]:
    """Splits a text at a pattern outside of brackets of all kinds and environments."""
    cuts = [found for found in re.finditer(separator, text) if _level(text[: found.start()]) == 0]
    if not cuts or len(cuts) >= _MAX_PARTS:
        return [text]
    edges = [0, *(edge for found in cuts for edge in found.span()), len(text)]
    return [text[start:end].strip() for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _level(text: str) -> int:
    opened = len(re.findall(r"[(\[{]|\\begin|\\langle", text))
    return opened - len(re.findall(r"[)\]}]|\\end|\\rangle", text))


def _without_domain(text: str) -> str:
    """Removes `k \\in \\mathbb{Z}` and the like after an expression."""
    parts = split_top(text, r",|\\quad")
    if len(parts) > 1 and _DOMAIN.fullmatch(parts[-1]):
        return text[: text.rindex(parts[-1])].rstrip(" ,\\quad").strip()
    found = re.search(rf"\s*\((?:{_DOMAIN.pattern})\)$", text) or re.search(rf"\s*\(\s*{_DOMAIN.pattern}\)$", text)
    return text[: found.start()].strip() if found and found.start() else text


def _read_table(text: str) -> Structure | None:
    text = re.sub(r"\\(pmatrix|bmatrix)\s*\{(.*)\}$", r"\\begin{\1}\2\\end{\1}", text, flags=re.DOTALL)
    found = _TABLE.fullmatch(text)
    if found is not None:
        is_cases = found["kind"] == "cases" or "\\{" in text[: found.start("body")]
        rows = [row for row in _ROWS.split(found["body"]) if row.strip()]
        cells = [[_cell(cell) for cell in split_top(row, "&")] for row in rows]
        return Structure("table", tuple(_tuple(row) for row in cells), "cases" if is_cases else "matrix")
    plain = _PLAIN_TABLE.fullmatch(text)
    if plain is None:
        return None
    rows = split_top((plain[1] or plain[2]).strip()[1:-1], ",")
    return Structure(
        "table", tuple(_tuple([_read(cell) for cell in split_top(row[1:-1], ",")]) for row in rows), "matrix"
    )


def _cell(text: str) -> Structure:
    text = re.sub(r"^\s*\\text\s*\{\s*(?:if|for|when)?\s*\}|^\s*(?:if|for|when)\b", "", text.strip().rstrip(",;."))
    return _read(text)


def _tuple(parts: Sequence[Structure]) -> Structure:
    return Structure("tuple", tuple(parts), "()")


def _read_congruence(text: str) -> Structure | None:
    name, _, right = text.rpartition("\\equiv")
    found = _MODULUS.search(right)
    if found is None:
        return None
    residue = right[: found.start()].strip().removesuffix("(").strip()
    return Structure("congruence", (residue, found["modulus"].strip()), name.strip()) if residue else None


def _read_set(text: str) -> Structure | None:
    label = _SET_NAME.match(text)
    if label is not None:
        inside = read_structure(text[label.end() :])
        return inside if inside.kind in ("collection", "region") else None
    builder = _BUILDER.fullmatch(text)
    if builder is not None:
        return read_structure(builder[1].strip())
    member = _MEMBER.match(text)
    if member is not None and len(split_top(text, rf"{_OR}|{_AND}|,")) == 1:
        return read_structure(text[member.end() :])
    if re.fullmatch(r"(?:\\mathbb\s*\{?\s*)?R\}?|\\text\{all real numbers\}|all real(?:s| numbers)|Reals", text):
        return Structure("region", ((_infinite("-"), _infinite("")),))
    calls = _INTERVAL.fullmatch(text)
    if calls is not None and _level(calls[3]) == 0:
        return _read_call(calls[1], split_top(calls[3], ","))
    for opening, closing in (("\\{", "\\}"), ("{", "}")):
        if text.startswith(opening) and text.endswith(closing) and _is_pair(re.sub(r"\\([{}])", r"\1", text)):
            parts = split_top(text[len(opening) : -len(closing)], _COMMA)
            if opening == "\\{" or len(parts) > 1:
                return Structure("collection", _collection(map(_read, parts)).parts, "set")
    return None


def _read_call(name: str, parts: list[str]) -> Structure | None:
    if name == "FiniteSet":
        return _collection(map(_read, parts))
    if name in ("Union", "Or", "And"):
        return _joined_regions([_read(part) for part in parts], is_union=name != "And")
    brackets = {"open": "()", "Lopen": "(]", "Ropen": "[)"}.get(name.partition(".")[2], "[]")
    return _as_region(Structure("tuple", tuple(map(_read, parts[:2])), brackets))


def _read_alternatives(text: str) -> Structure | None:
    for separator, is_union in ((r"\\(?:big)?cup(?![a-zA-Z])|(?<=[)\]]) *U *(?=[(\[])", True),
                                (r"\\(?:big)?cap(?![a-zA-Z])", False)):  # fmt: skip
        parts = split_top(text, separator)
        if len(parts) > 1:
            return _joined_regions([_read(part) for part in parts], is_union=is_union)
    parts = split_top(text, r"\\(?:setminus|backslash)(?![a-zA-Z])")
    if len(parts) == 2:
        return _without_points(_read(parts[0]), _read(parts[1]))
    for separator, is_union in ((_OR, True), (_AND, False)):
        parts = [part.strip(" ,") for part in split_top(text, separator)]
        if len(parts) > 1 and all(parts):
            structures = [_read(part) for part in parts]
            is_region = any(part.kind == "region" for part in structures)
            return (_joined_regions(structures, is_union=is_union) if is_region else None) or _listed(structures)
    return None


def _read_list(text: str) -> Structure | None:
    parts = [part for part in split_top(text, _COMMA) if part]
    if len(parts) < 2:
        return None
    structures = [_read(part) for part in parts]
    if any(part.kind == "region" for part in structures):
        both = _joined_regions(structures, is_union=False)
        return both if both is not None and both.parts else _joined_regions(structures, is_union=True)
    return _listed(structures)


def _listed(structures: list[Structure]) -> Structure:
    """Returns values of one name as a collection, and of several names as a tuple in the order of the names."""
    names = [part.label if part.kind == "named" else "" for part in structures]
    bases = {re.sub(r"_.*", "", name) for name in names}
    if all(names) and len(bases) > 1 and len(set(names)) == len(names):
        return Structure(
            "tuple",
            tuple(part.parts[0] for _, part in sorted(zip(names, structures, strict=True), key=lambda p: p[0])),
            "()",
        )
    if bases == {""} or len(bases - {""}) == 1:
        return _collection(part.parts[0] if part.kind == "named" else part for part in structures)
    return _collection(structures)


def _collection(structures: Any) -> Structure:
    items: list[Structure] = []
    for part in structures:
        items += part.parts if part.kind == "collection" and not part.label else (part,)
    return Structure("collection", tuple(dict.fromkeys(items)))


def _read_relation(text: str) -> Structure | None:
    signs = [found for found in _RELATION.finditer(text) if _level(text[: found.start()]) == 0]
    if not signs or len(signs) > 2:
        return None
    edges = [0, *(edge for sign in signs for edge in sign.span()), len(text)]
    sides = [tidy(text[start:end]) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    ops = [_RELATIONS[sign[0]] for sign in signs]
    if sides[0] == "" or sides[-1] == "":
        return None
    return _region_of(sides, ops) or Structure("relation", tuple(sides), " ".join(ops))


def _region_of(sides: list[str], ops: list[str]) -> Structure | None:
    """Returns the values that a chain of relations with one variable leaves, or None."""
    places = [
        place for place, side in enumerate(sides) if re.fullmatch(r"\\?[A-Za-z]+(?:_\w)?|[A-Za-z]\([a-z]\)", side)
    ]
    ends = [_bound_value(side) for place, side in enumerate(sides) if [place] != places[:1]]
    if len(places) != 1 or None in ends or (len(sides) == 3 and places != [1]):
        return None
    low, high = _infinite("-"), _infinite("")
    for place, op in enumerate(ops):
        is_left = place < places[0]
        sign = _FLIPPED[op] if is_left else op
        text = sides[place if is_left else place + 1]
        bound = Bound(text, "=" in sign, _bound_value(text))
        if sign == "!=":
            everything = Structure("region", ((low, high),), sides[places[0]])
            return _without_points(everything, Structure("scalar", (text,)))
        low, high = (bound, high) if sign[0] == ">" else (low, bound)
    return Structure("region", ((low, high),) if _is_before(low, high) else (), sides[places[0]])


def _read_equation(text: str) -> Structure | None:
    sides = split_top(text, _EQUATION.pattern)
    if len(sides) < 2 or not all(sides):
        return None
    if len(sides) == 2 and re.fullmatch(r"\\?[A-Za-z](?:_\w)?", sides[1]) and not _is_name(sides[0]):
        sides.reverse()
    if _is_name(sides[0]):
        name = re.sub(r"\s|[{}]", "", sides[0])
        values = [_read(side) for side in sides[1:]]
        names = sides[0].strip("()").split(",")
        if len(names) > 1 and values[0].kind == "tuple":
            return values[0]
        return Structure("named", (values[-1],), name) if _agree(values, text) else None
    if re.fullmatch(r"\([A-Za-z](?:\s*,\s*[A-Za-z])+\)", sides[0]):
        return _read(text.partition("=")[2])
    if len(sides) == 2 and "\\approx" not in text and _has_names(sides[0] + "+" + sides[1]):
        return Structure("equation", tuple(map(tidy, sides)))
    values = [_read(side) for side in sides]
    return values[0 if "\\approx" in text else -1] if _agree(values, text) else None


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text) or (_SUM_NAME.fullmatch(text) and not _is_word_product(text)))


def _is_word_product(text: str) -> bool:
    return "=" in text


def _has_names(text: str) -> bool:
    try:
        return bool(names_of(read_expression(text)) - {"i"})
    except UnreadableError:
        return False


def _agree(values: list[Structure], text: str) -> bool:
    """Returns whether the sides of a chain of equations are equal; roughly after an approximation."""
    if "\\approx" not in text:
        return all(are_equal(value, values[-1]) for value in values[:-1])
    numbers = [_bound_value(value.parts[0]) if value.kind == "scalar" else None for value in values]
    if None in numbers:
        return False
    first, *others = map(_float, numbers)
    return all(abs(number - first) <= abs(first) / 20 for number in others)


def _float(value: Any) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _read_plus_minus(text: str) -> Structure | None:
    if not re.search(r"\\(?:pm|mp)(?![a-zA-Z])", text):
        return None
    upper = re.sub(r"\\mp(?![a-zA-Z])", "-", re.sub(r"\\pm(?![a-zA-Z])", "+", text))
    lower = re.sub(r"\\mp(?![a-zA-Z])", "+", re.sub(r"\\pm(?![a-zA-Z])", "-", text))
    return _collection(_read(text.strip().removeprefix("+").strip()) for text in (upper, lower))


def _read_tuple(text: str) -> Structure | None:
    text = re.sub(r"^[A-Z](?:_\w)?\s*(?=\([^()]*,[^()]*\)$)", "", text)
    text = re.sub(r"^\\langle(.*)\\rangle$", r"(\1)", text)
    french = re.fullmatch(r"([\[\]])([^\[\]]*)([\[\]])", text)
    if french and french[1] + french[3] in ("][", "]]", "[["):
        text = ("(" if french[1] == "]" else "[") + french[2] + (")" if french[3] == "[" else "]")
    if len(text) < 3 or text[0] not in "([" or text[-1] not in ")]" or _level(text[1:-1]) or not _is_pair(text):
        return None
    parts = split_top(text[1:-1], rf"{_COMMA}|,")
    if len(parts) < 2 or not all(parts):
        return None
    structures = [_read(part) for part in parts]
    brackets = text[0] + text[-1]
    whole = Structure("tuple", tuple(structures), brackets)
    is_interval = "\\infty" in text or brackets in ("[)", "(]") or any(part.kind == "constant" for part in structures)
    if not is_interval and re.search(r"(?<![a-z])(?:oo|inf|infinity)(?![a-z])", text):
        is_interval = True
    return _as_region(whole) if is_interval and len(structures) == 2 else whole


def _is_pair(text: str) -> bool:
    """Returns whether the first bracket is closed by the last one."""
    level = 0
    for place, char in enumerate(text):
        level += (char in "([{") - (char in ")]}")
        if level == 0:
            return place == len(text) - 1
    return False


def _infinite(sign: str) -> Bound:
    return Bound(f"{sign}\\infty", False, mpmath.mpf(f"{sign}inf"))


def _bound_value(text: str) -> Any:
    """Returns the value of a text without variables, or None."""
    try:
        tree = _tree(text)
        value = None if names_of(tree) else number_of(tree)
    except (UnreadableError, NoValueError):
        return None
    return None if value is None or mpmath.im(_float(value)) else value


def _tree(text: str) -> Node:
    return read_expression(split_scalar(text)[0])


def _as_region(structure: Structure) -> Structure | None:
    if structure.kind == "region":
        return structure
    if structure.kind in ("scalar", "collection"):
        bounds = [Bound(text, True, _bound_value(text)) for text in scalars_of(structure)]
        return (
            Structure("region", tuple((bound, bound) for bound in bounds))
            if all(b.value is not None for b in bounds)
            else None
        )
    if structure.kind != "tuple" or len(structure.parts) != 2 or not structure.label:
        return None
    texts = [part.parts[0] for part in structure.parts if part.kind == "scalar"]
    values = [_bound_value(text) for text in texts]
    if len(texts) != 2:
        return None
    bounds = [
        Bound(
            "-\\infty"
            if value is not None and value < 0 and mpmath.isinf(_float(value))
            else "\\infty"
            if value is not None and mpmath.isinf(_float(value))
            else text,
            bracket in "[]",
            value,
        )
        for text, bracket, value in zip(texts, structure.label, values, strict=True)
    ]
    if any(bound.value is None for bound in bounds):
        return Structure("region", (tuple(bounds),))
    return Structure("region", (tuple(bounds),)) if _is_before(*bounds) else None


def _is_before(low: Bound, high: Bound) -> bool:
    if low.value is None or high.value is None:
        return True
    left, right = _float(low.value), _float(high.value)
    return bool(left < right or (left == right and low.is_closed and high.is_closed))


def _joined_regions(structures: list[Structure], *, is_union: bool) -> Structure | None:
    """Returns the union or intersection; None if a part is no region, or none is more than points."""
    if not any(part.kind in ("region", "tuple") for part in structures):
        return None
    regions = [_as_region(part) for part in structures]
    names = {region.label for region in regions if region is not None} - {""}
    if None in regions or len(names) > 1:
        return None
    pieces = [region.parts for region in regions if region is not None]
    if any(bound.value is None for region in pieces for piece in region for bound in piece):
        return Structure("region", sum(pieces, ())) if is_union else None
    parts = sum(pieces, ()) if is_union else pieces[0]
    if not is_union:
        for others in pieces[1:]:
            parts = tuple(piece for one in parts for other in others if (piece := _overlap(one, other)))
    return Structure("region", parts, next(iter(names), ""))


def _overlap(one: tuple[Bound, Bound], other: tuple[Bound, Bound]) -> tuple[Bound, Bound] | None:
    low = max(one[0], other[0], key=lambda bound: (_float(bound.value), not bound.is_closed))
    high = min(one[1], other[1], key=lambda bound: (_float(bound.value), bound.is_closed))
    return (low, high) if _is_before(low, high) else None


def _without_points(structure: Structure, points: Structure) -> Structure | None:
    region, holes = _as_region(structure), _as_region(points)
    if region is None or holes is None:
        return None
    parts = region.parts
    for hole, end in holes.parts:
        if hole != end:
            return None
        gap = Bound(hole.text, False, hole.value)
        sides = ((_infinite("-"), gap), (gap, _infinite("")))
        parts = tuple(piece for part in parts for side in sides if (piece := _overlap(part, side)))
    return Structure("region", parts, region.label)


def _merged(region: Structure) -> list[tuple[Bound, Bound]]:
    pieces = sorted(region.parts, key=lambda piece: (_float(piece[0].value), not piece[0].is_closed))
    merged: list[tuple[Bound, Bound]] = []
    for low, high in pieces:
        if merged:
            last = merged[-1][1]
            gap = _float(low.value) - _float(last.value)
            if gap < 0 or (gap == 0 and (low.is_closed or last.is_closed)):
                longest = max(last, high, key=lambda bound: (_float(bound.value), bound.is_closed))
                merged[-1] = (merged[-1][0], longest)
                continue
        merged.append((low, high))
    return merged


def _are_regions_equal(one: Structure, other: Structure) -> bool:
    if one.label and other.label and one.label != other.label:
        return False
    is_known = all(bound.value is not None for region in (one, other) for piece in region.parts for bound in piece)
    left, right = (_merged(one), _merged(other)) if is_known else (list(one.parts), list(other.parts))
    return len(left) == len(right) and all(
        bound.is_closed == wanted.is_closed and are_scalars_equal(bound.text, wanted.text)
        for pair in zip(left, right, strict=True)
        for bound, wanted in zip(*pair, strict=True)
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


def _sides(structure: Structure) -> Sequence[str] | None:
    if structure.kind == "named" and structure.parts[0].kind == "scalar":
        return structure.label, structure.parts[0].parts[0]
    return structure.parts if structure.kind == "equation" else None


def _difference(sides: Sequence[str]) -> Node:
    left, right = map(read_expression, sides)
    return Node("add", (left, Node("neg", (right,))))


def _are_equations_equal(answer: Structure, truth: Structure) -> bool:
    pairs = [_sides(answer), _sides(truth)]
    try:
        return None not in pairs and are_proportional(*(_difference(sides) for sides in pairs if sides)) != 0
    except UnreadableError:
        return False


def _are_relations_equal(answer: Structure, truth: Structure) -> bool:
    for parts, ops in (
        (answer.parts, answer.label.split()),
        (answer.parts[::-1], [_FLIPPED[op] for op in answer.label.split()[::-1]]),
    ):
        if ops == truth.label.split() and all(map(are_scalars_equal, parts, truth.parts)):
            return True
    if len(answer.parts) != 2:
        return False
    try:
        sign = are_proportional(_difference(answer.parts), _difference(truth.parts))
    except UnreadableError:
        return False
    return sign != 0 and (answer.label if sign > 0 else _FLIPPED[answer.label]) == truth.label


def _items(structure: Structure) -> tuple[Structure, ...]:
    is_list = structure.kind == "collection" or (structure.kind == "tuple" and structure.label in ("[]", ""))
    return structure.parts if is_list else (structure,)


def _are_collections_equal(answers: Sequence[Structure], truths: Sequence[Structure]) -> bool:
    """Returns whether each item equals one of the other side; a set of one number is not the number."""
    if max(len(answers), len(truths)) > _MAX_PARTS:
        return False
    verdicts = [
        [(answer.label == "set") == (truth.label == "set") and are_equal(answer, truth) for truth in truths]
        for answer in answers
    ]
    return all(map(any, verdicts)) and all(map(any, zip(*verdicts, strict=True)))
