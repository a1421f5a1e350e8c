r"""Reads how an answer is put together: sets, tuples, intervals, matrices, relations, congruences.

The parts are texts as `math_notation.tidy` returns them. What is no structure is one scalar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from verl_agentic.graders.maths.forms.math_comparison import FLIPPED, MAX_PARTS, are_equal
from verl_agentic.graders.maths.forms.math_expressions import UnreadableError, names_of, read_expression
from verl_agentic.graders.maths.forms.math_notation import tidy
from verl_agentic.graders.maths.forms.math_regions import (
    Bound,
    Structure,
    as_region,
    infinite,
    is_before,
    join_regions,
    real_value,
    remove_region,
    to_mp,
)

_OR = r"\\l?or(?![a-zA-Z])|\\vee(?![a-zA-Z])|(?<![A-Za-z\\])or(?![A-Za-z])|(?<=\)) *\| *(?=\()"
_AND = r"\\land(?![a-zA-Z])|\\wedge(?![a-zA-Z])|(?<![A-Za-z\\])and(?![A-Za-z])|\\?&(?= |$)"
_COMMA = r",(?!\d{3}(?!\d))|,(?=\d{3}(?:,\d{1,2}(?!\d)|,\d{4}))|;"
_RELATIONS = {"<": "<", ">": ">", "\\lt": "<", "\\gt": ">", "\\le": "<=", "\\leq": "<=", "\\ge": ">=", "\\geq": ">=",
              "\\leqslant": "<=", "\\geqslant": ">=", "<=": "<=", ">=": ">=", "\\leqq": "<=", "\\geqq": ">=",
              "\\ne": "!=", "\\neq": "!=", "!=": "!="}  # fmt: skip
_RELATION = re.compile(r"<=|>=|!=|<|>|\\(?:lt|gt|leqslant|geqslant|leqq|geqq|leq|geq|le|ge|neq|ne)(?![a-zA-Z])")
_EXCLUSION = re.compile(r"\\?[A-Za-z]\s*(?:\\neq?(?![a-zA-Z])|!=)\s*(?=[^=<>]+$)")
_EQUATION = re.compile(r"(?<![<>!:=\\])=(?!=)|\\approx(?![a-zA-Z])")
_NAME = re.compile(
    r"\\?#?(?:\\?[A-Za-z]+'?|\\(?:angle|triangle|overline|vec|text|operatorname|mathcal)\s*\{?[^{}=]*\}?|\|[A-Za-z]+\|"
    r"|\[[A-Z]+\])(?:_\{[\w,]+\}|_\w)?(?:\([\w,]+\))?(?:\s*\^\{\\circ\})?"
)
_SUM_NAME = re.compile(r"[A-Za-z](?:\s*(?:[+*:-]\s*)?[A-Za-z])+")
_DOMAIN = re.compile(
    r"\(?\s*\\?[A-Za-z](?:_\w)?(?:\s*,\s*[A-Za-z])*\s*\\in\s*(?:\\(?:mathbb|mathbf|text)\s*\{?\s*)?[ZNRCQ]\}?"
    r"\s*(?:[\^_]?\s*\{?[*+]\}?)*\s*\)?"
)
_MEMBER = re.compile(r"(?:\\?[A-Za-z](?:_\w+)?|\([A-Za-z](?:\s*,\s*[A-Za-z])+\))\s*\\in(?![a-zA-Z])\s*")
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
    r"\(?\s*(?:\\[pb]?mod|\\text\s*\{\s*mod\s*\}|\\operatorname\s*\{mod\}|mod)(?![a-zA-Z])"
    r"\s*\{?\s*(?P<modulus>[^{}()]+)\}?\s*\)?$"
)  # fmt: skip


def read_structure(text: str) -> Structure:
    """Returns the structure of a text."""
    text = _without_domain(text.strip())
    for reader in (_read_table, _read_congruence, _read_set, _read_alternatives, _read_list, _read_relation,
                   _read_equation, _read_plus_minus, _read_tuple):  # fmt: skip
        structure = reader(text)
        if structure is not None:
            return structure
    return Structure("scalar", (text,))


def _read_tidied(text: str) -> Structure:
    return read_structure(tidy(text))


def split_top(text: str, separator: str) -> list[str]:
    """Splits a text at a pattern outside of brackets of all kinds and environments."""
    cuts = [cut for cut in re.finditer(separator, text) if _count_open_brackets(text[: cut.start()]) == 0]
    if not cuts or len(cuts) >= MAX_PARTS:
        return [text]
    edges = [0, *(edge for cut in cuts for edge in cut.span()), len(text)]
    return [text[start:end].strip() for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _count_open_brackets(text: str) -> int:
    opened = len(re.findall(r"[(\[{]|\\begin|\\langle", text))
    return opened - len(re.findall(r"[)\]}]|\\end|\\rangle", text))


def _without_domain(text: str) -> str:
    """Removes `n \\in \\mathbb{Z}` and the like after an expression; names the variable `k`."""
    parts = split_top(text, r",|\\quad")
    if len(parts) > 1 and _DOMAIN.fullmatch(parts[-1]):
        domain, text = parts[-1], re.sub(r"(?:\s|,|\\q?quad(?![a-zA-Z]))+$", "", text[: text.rindex(parts[-1])])
    elif (match := re.search(rf"\s*\(\s*(?:{_DOMAIN.pattern})\)$", text)) and match.start():
        domain, text = match[0], text[: match.start()].strip()
    else:
        return text
    name = re.match(r"[\s(]*([a-z])\s*\\in.*Z", domain)
    has_k = re.search(r"(?<![A-Za-z\\])k(?![A-Za-z])", text)
    return re.sub(rf"(?<![A-Za-z\\]){name[1]}(?![A-Za-z])", "k", text) if name and not has_k else text


def _read_table(text: str) -> Structure | None:
    text = re.sub(r"\\(pmatrix|bmatrix)\s*\{(.*)\}$", r"\\begin{\1}\2\\end{\1}", text, flags=re.DOTALL)
    match = _TABLE.fullmatch(text)
    if match is not None:
        is_cases = match["kind"] == "cases" or "\\{" in text[: match.start("body")]
        kind = "cases" if is_cases else "determinant" if match["kind"] in ("vmatrix", "Vmatrix") else "matrix"
        rows = [row for row in _ROWS.split(match["body"]) if row.strip()]
        cells = [[_read_cell(cell) for cell in split_top(row, "&")] for row in rows]
        if is_cases and all(len(row) == 1 and row[0].kind in ("named", "equation") for row in cells):
            return _group_by_name([row[0] for row in cells])
        return Structure("table", tuple(_make_tuple(row) for row in cells), kind)
    plain = _PLAIN_TABLE.fullmatch(text)
    if plain is None:
        return None
    rows = split_top((plain[1] or plain[2]).strip()[1:-1], ",")
    return Structure(
        "table",
        tuple(_make_tuple([_read_tidied(cell) for cell in split_top(row[1:-1], ",")]) for row in rows),
        "matrix",
    )


def _read_cell(text: str) -> Structure:
    text = re.sub(r"^\s*\\text\s*\{\s*(?:if|for|when)?\s*\}|^\s*(?:if|for|when)\b", "", text.strip().rstrip(",;."))
    return _read_tidied(text)


def _make_tuple(parts: Sequence[Structure]) -> Structure:
    return Structure("tuple", tuple(parts), "()")


def _read_congruence(text: str) -> Structure | None:
    name, _, right = text.rpartition("\\equiv")
    match = _MODULUS.search(right)
    if match is None:
        return None
    residue = right[: match.start()].strip().removesuffix("(").strip()
    return Structure("congruence", (residue, match["modulus"].strip()), name.strip()) if residue else None


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
        return Structure("region", ((infinite("-"), infinite("")),))
    calls = _INTERVAL.fullmatch(text)
    if calls is not None and _count_open_brackets(calls[3]) == 0:
        return _read_call(calls[1], split_top(calls[3], ","))
    for opening, closing in (("\\{", "\\}"), ("{", "}")):
        if text.startswith(opening) and text.endswith(closing) and _is_pair(re.sub(r"\\([{}])", r"\1", text)):
            parts = split_top(text[len(opening) : -len(closing)], _COMMA)
            if opening == "\\{" or len(parts) > 1:
                return Structure("collection", _make_collection(map(_read_tidied, parts)).parts, "set")
    return None


def _read_call(name: str, parts: list[str]) -> Structure | None:
    if name == "FiniteSet":
        return _make_collection(map(_read_tidied, parts))
    if name in ("Union", "Or", "And"):
        return join_regions([_read_tidied(part) for part in parts], is_union=name != "And")
    brackets = {"open": "()", "Lopen": "(]", "Ropen": "[)"}.get(name.partition(".")[2], "[]")
    return as_region(Structure("tuple", tuple(map(_read_tidied, parts[:2])), brackets))


def _read_alternatives(text: str) -> Structure | None:
    for separator, is_union in ((r"\\(?:big)?cup(?![a-zA-Z])|(?<=[)\]]) *U *(?=[(\[])", True),
                                (r"\\(?:big)?cap(?![a-zA-Z])", False)):  # fmt: skip
        parts = split_top(text, separator)
        if len(parts) > 1:
            return join_regions([_read_tidied(part) for part in parts], is_union=is_union)
    parts = split_top(text, r"\\(?:setminus|backslash)(?![a-zA-Z])|(?<=[)}\]])\s*-\s*(?=\\?\{)")
    if len(parts) == 2:
        return remove_region(_read_tidied(parts[0]), _read_tidied(parts[1]))
    for separator, is_union in ((_OR, True), (_AND, False)):
        parts = [part.strip(" ,") for part in split_top(text, separator)]
        if len(parts) > 1 and all(parts):
            structures = [_read_tidied(part) for part in parts]
            is_region = any(part.kind == "region" for part in structures)
            return (join_regions(structures, is_union=is_union) if is_region else None) or _group_by_name(structures)
    return None


def _read_list(text: str) -> Structure | None:
    parts = [part for part in split_top(text, _COMMA) if part]
    if len(parts) < 2:
        return None
    if exclusion := _EXCLUSION.match(parts[0]):  # x is neither 0 nor 1
        parts = [part if _RELATION.search(part) else exclusion[0] + part for part in parts]
    structures = [_read_tidied(part) for part in parts]
    if any(part.kind == "region" for part in structures):
        both = join_regions(structures, is_union=False)
        return both if both is not None and both.parts else join_regions(structures, is_union=True)
    return _group_by_name(structures)


def _group_by_name(structures: list[Structure]) -> Structure:
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
        return _make_collection(part.parts[0] if part.kind == "named" else part for part in structures)
    return _make_collection(structures)


def _make_collection(structures: Any) -> Structure:
    items: list[Structure] = []
    for part in structures:
        items += part.parts if part.kind == "collection" and not part.label else (part,)
    return Structure("collection", tuple(dict.fromkeys(items)))


def _read_relation(text: str) -> Structure | None:
    signs = [match for match in _RELATION.finditer(text) if _count_open_brackets(text[: match.start()]) == 0]
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
        place
        for place, side in enumerate(sides)
        if re.fullmatch(r"\\?[A-Za-z]+(?:_\w)?|[A-Za-z]\([a-z]\)", side) and real_value(side) is None
    ]
    ends = [real_value(side) for place, side in enumerate(sides) if [place] != places[:1]]
    if len(places) != 1 or None in ends or (len(sides) == 3 and places != [1]):
        return None
    low, high = infinite("-"), infinite("")
    for place, op in enumerate(ops):
        is_left = place < places[0]
        sign = FLIPPED[op] if is_left else op
        text = sides[place if is_left else place + 1]
        bound = Bound(text, "=" in sign, real_value(text))
        if sign == "!=":
            everything = Structure("region", ((low, high),), sides[places[0]])
            return remove_region(everything, Structure("scalar", (text,)))
        low, high = (bound, high) if sign[0] == ">" else (low, bound)
    return Structure("region", ((low, high),) if is_before(low, high) else (), sides[places[0]])


def _read_equation(text: str) -> Structure | None:
    sides = split_top(text, _EQUATION.pattern)
    if len(sides) < 2 or not all(sides):
        return None
    if len(sides) == 2 and re.fullmatch(r"\\?[A-Za-z](?:_\w)?", sides[1]) and not _is_name(sides[0]):
        sides.reverse()
    if _is_name(sides[0]):
        name = re.sub(r"\s|[{}]", "", sides[0])
        values = [_read_tidied(side) for side in sides[1:]]
        names = sides[0].strip("()").split(",")
        if len(names) > 1 and values[0].kind == "tuple":
            return values[0]
        return Structure("named", (values[-1],), name) if _are_sides_equal(values, text) else None
    if re.fullmatch(r"\([A-Za-z](?:\s*,\s*[A-Za-z])+\)", sides[0]):
        return _read_tidied(text.partition("=")[2])
    if len(sides) == 2 and "\\approx" not in text and _has_names(sides[0] + "+" + sides[1]):
        return Structure("equation", tuple(map(tidy, sides)))
    values = [_read_tidied(side) for side in sides]
    return values[0 if "\\approx" in text else -1] if _are_sides_equal(values, text) else None


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text) or _SUM_NAME.fullmatch(text)) and text not in ("\\pi", "\\infty")


def _has_names(text: str) -> bool:
    try:
        return bool(names_of(read_expression(text)) - {"i"})
    except UnreadableError:
        return False


def _are_sides_equal(values: list[Structure], text: str) -> bool:
    """Returns whether the sides of a chain of equations are equal; roughly after an approximation."""
    if "\\approx" not in text:
        return all(are_equal(value, values[-1]) for value in values[:-1])
    numbers = [real_value(value.parts[0]) if value.kind == "scalar" else None for value in values]
    if None in numbers:
        return False
    first, *others = map(to_mp, numbers)
    return all(abs(number - first) <= abs(first) / 20 for number in others)


def _read_plus_minus(text: str) -> Structure | None:
    if not re.search(r"\\(?:pm|mp)(?![a-zA-Z])", text):
        return None
    upper = re.sub(r"\\mp(?![a-zA-Z])", "-", re.sub(r"\\pm(?![a-zA-Z])", "+", text))
    lower = re.sub(r"\\mp(?![a-zA-Z])", "+", re.sub(r"\\pm(?![a-zA-Z])", "-", text))
    return _make_collection(_read_tidied(text.strip().removeprefix("+").strip()) for text in (upper, lower))


def _read_tuple(text: str) -> Structure | None:
    text = re.sub(r"^[A-Z](?:_\w)?\s*(?=\([^()]*,[^()]*\)$)", "", text)
    text = re.sub(r"^\\langle(.*)\\rangle$", r"(\1)", text)
    french = re.fullmatch(r"([\[\]])([^\[\]]*)([\[\]])", text)
    if french and french[1] + french[3] in ("][", "]]", "[["):
        text = ("(" if french[1] == "]" else "[") + french[2] + (")" if french[3] == "[" else "]")
    if (
        len(text) < 3
        or text[0] not in "(["
        or text[-1] not in ")]"
        or _count_open_brackets(text[1:-1])
        or not _is_pair(text)
    ):
        return None
    parts = split_top(text[1:-1], rf"{_COMMA}|,")
    if len(parts) < 2 or not all(parts):
        return None
    structures = [_read_tidied(part) for part in parts]
    brackets = text[0] + text[-1]
    whole = Structure("tuple", tuple(structures), brackets)
    is_interval = brackets in ("[)", "(]") or re.search(r"\\infty|(?<![a-z])(?:oo|inf|infinity)(?![a-z])", text)
    return as_region(whole) if is_interval and len(structures) == 2 else whole


def _is_pair(text: str) -> bool:
    """Returns whether the first bracket is closed by the last one."""
    level = 0
    for place, char in enumerate(text):
        level += (char in "([{") - (char in ")]}")
        if level == 0:
            return place == len(text) - 1
    return False
