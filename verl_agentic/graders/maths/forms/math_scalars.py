r"""Compares two scalars: numbers, expressions with units, clock times, ratios, numbers of another base, and words."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, parse

from verl_agentic.graders.maths.forms.math_expressions import Node, UnreadableError, names_of, nodes_of, read_expression
from verl_agentic.graders.maths.forms.math_labels import compare_labels
from verl_agentic.graders.maths.forms.math_notation import tidy
from verl_agentic.graders.maths.forms.math_numbers import MIN_DECIMALS, are_equal, max_error, read_number
from verl_agentic.graders.maths.forms.math_units import Unit, split_unit
from verl_agentic.graders.maths.forms.math_values import NoValueError, have_same_value, number_of

_CALCULUS = re.compile(r"\\(?:sum|prod|i?int|lim|det|max|min|gcd|lcm|frac\{d)(?![a-zA-Z])|\bmod\b|\\bmod")
_MAX_CHARS = 400
_CONFIG = [
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="all")
    )
]
_PERCENT = re.compile(r"\s*\\?%$")
_MONEY = re.compile(r"^\\?[$\u20ac\u00a3\u00a5\u20b9]\s*")
_DIGITS_OF_BASE = re.compile(
    r"\(?(?P<digits>[\dA-F]+)\)?\s*(?:_\s*\{?\s*\(?(?:\\text\s*\{)?\s*(?P<base>\w+)\s*\}?\)?\s*\}?"
    r"|(?:\\text\s*\{)?\s*\(?(?:in )?base (?P<named>\w+)\)?\s*\}?)"
)
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
          "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?:\s*(?:\\text\s*\{)?\s*([ap])\.?\s*m\b\.?\s*\}?)?", re.IGNORECASE)
_RATIO = re.compile(r"\s*(?::|(?<=\d)\s+to\s+(?=\d)|\\text\s*\{\s*(?::|to)\s*\})\s*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_NOISE = re.compile(r"(?:(?<!\d)|(?!.\d))[\s:;]|[$\"'`!]|[.,](?!\d)|\\ ")
_STEP_FUNCTIONS = frozenset(("factorial", "binomial", "gcd", "lcm", "max", "min", "abs", "floor", "ceil"))


def are_scalars_equal(answer: str, truth: str) -> bool:
    """Returns whether two texts that `math_notation.tidy` returned have the same value; undecided is not equal."""
    if answer == truth:
        return True
    for compare in (
        compare_labels,
        _compare_bases,
        _compare_clocks,
        _compare_numbers,
        _compare_ratios,
        _compare_expressions,
    ):
        verdict = compare(answer, truth)
        if verdict is not None:
            return verdict
    return plain_text(answer) == plain_text(truth)


def is_readable(text: str) -> bool:
    """Returns whether a text is a number or an expression."""
    return read_number(text) is not None or _try_read_tree(split_scalar(text)[0]) is not None


def is_scalar_evaluated(text: str) -> bool:
    r"""Returns whether a text cannot be evaluated further; `12\cdot34`, `2^{10}`, `\frac{84}{2}`, `\sqrt{16}` can."""
    number = read_number(text)
    if number is not None:
        return number.is_evaluated
    if _is_calculus(text):
        return False
    tree = _try_read_tree(split_scalar(text)[0])
    return tree is None or not any(map(_is_step, nodes_of(tree)))


def split_scalar(text: str) -> tuple[str, Unit | None, bool]:
    """Returns the expression of a scalar, its unit if known, and whether it ends with a percent sign."""
    text = _MONEY.sub("", text)
    expression = _PERCENT.sub("", text)
    return (*split_unit(expression), expression != text)


def plain_text(text: str) -> str:
    """Returns a text without spaces, punctuation and text commands, in lower case."""
    text = re.sub(r"\{(\w)\}", r"\1", _NOISE.sub("", _TEXT.sub(r"\1", text)))
    return text if "\\" in text else text.casefold()


def _compare_bases(answer: str, truth: str) -> bool | None:
    answer_match, truth_match = (_DIGITS_OF_BASE.fullmatch(text) for text in (answer, truth))
    if not answer_match or not truth_match:
        return False if (answer_match or truth_match) and read_number(truth if answer_match else answer) else None
    bases = [
        _BASES.get(match["base"] or match["named"], match["base"] or match["named"])
        for match in (answer_match, truth_match)
    ]
    return answer_match["digits"] == truth_match["digits"] and bases[0] == bases[1]


def _compare_clocks(answer: str, truth: str) -> bool | None:
    answer_match, truth_match = (_CLOCK.fullmatch(text) for text in (answer, truth))
    if (
        not answer_match
        or not truth_match
        or not (
            answer_match[3]
            or truth_match[3]
            or int(answer_match[1]) == int(truth_match[1])
            or _is_padded(answer, truth)
        )
    ):
        return None
    hours = [
        int(hour) % 12 + 12 * (half in "pP") if half else int(hour)
        for hour, _, half in (answer_match.groups(), truth_match.groups())
    ]
    is_same_hour = hours[0] == hours[1] or (
        not (answer_match[3] and truth_match[3]) and int(answer_match[1]) == int(truth_match[1])
    )
    return is_same_hour and answer_match[2] == truth_match[2]


def _is_padded(*texts: str) -> bool:
    """Returns whether one of them writes a number as `05`, as clocks do and ratios do not."""
    return any(re.search(r"(?<!\d)0\d", text) for text in texts)


def _compare_ratios(answer: str, truth: str) -> bool | None:
    """Compares `2:3` with `4:6` and with the fraction; ratios of more numbers by those to the first one."""
    answer_parts, truth_parts = (_RATIO.split(text) for text in (answer, truth))
    if len(answer_parts) != len(truth_parts):
        fraction, ratio = sorted((answer_parts, truth_parts), key=len)
        return _compare_expressions(f"({ratio[0]})/({ratio[1]})", fraction[0]) if len(ratio) == 2 else None
    if len(answer_parts) < 2 or not all(answer_parts + truth_parts):
        return None
    return all(
        are_scalars_equal(tidy(f"({answer_parts[0]})/({answer_part})"), tidy(f"({truth_parts[0]})/({truth_part})"))
        for answer_part, truth_part in zip(answer_parts[1:], truth_parts[1:], strict=True)
    )


def _compare_numbers(answer: str, truth: str) -> bool | None:
    answer_number, truth_number = read_number(answer), read_number(truth)
    return are_equal(answer_number, truth_number) if answer_number is not None and truth_number is not None else None


def _compare_expressions(answer: str, truth: str) -> bool | None:
    (answer_text, unit, is_percent), (truth_text, truths_unit, is_truth_percent) = (
        split_scalar(answer),
        split_scalar(truth),
    )
    if unit and truths_unit and unit.kinds != truths_unit.kinds:
        return False
    if "\\pi" in answer + truth and "\\circ" in answer + truth:
        answer_text, truth_text = answer, truth  # degrees are compared with radians
    answer_tree, truth_tree = _try_read_tree(answer_text), _try_read_tree(truth_text)
    if answer_tree is None or truth_tree is None:
        return None if answer_tree is truth_tree else False
    if unit and truths_unit:
        answer_tree, truth_tree = _scale_tree(answer_tree, unit.factor), _scale_tree(truth_tree, truths_unit.factor)
    hundredth = Fraction(1, 100)
    if is_percent == is_truth_percent:
        return _is_same(answer_tree, truth_tree, answer_text, truth_text)
    pairs = (
        (answer_tree, truth_tree),
        (
            _scale_tree(answer_tree, hundredth) if is_percent else answer_tree,
            truth_tree if is_percent else _scale_tree(truth_tree, hundredth),
        ),
    )
    return any(_is_same(*pair, answer_text, truth_text) for pair in pairs)


def _is_same(answer_tree: Node, truth_tree: Node, answer: str, truth: str) -> bool:
    return have_same_value(answer_tree, truth_tree) or _is_rounded(answer_tree, truth_tree, answer, truth)


def _is_rounded(answer_tree: Node, truth_tree: Node, *texts: str) -> bool:
    """Returns whether a decimal number of many digits is the other value, rounded or as a double."""
    decimals = [
        number
        for text in texts
        if (number := read_number(text)) and (number.decimals or 0) >= MIN_DECIMALS and number.digits > 3
    ]
    if len(decimals) != 1 or names_of(answer_tree) | names_of(truth_tree):
        return False
    try:
        difference = number_of(Node("add", (answer_tree, Node("neg", (truth_tree,)))))
    except NoValueError:
        return False
    return bool(mpmath.fabs(_to_mp(difference)) <= _to_mp(max_error(decimals[0])))


def _to_mp(value: Any) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _scale_tree(tree: Node, factor: Fraction) -> Node:
    return tree if factor == 1 else Node("mul", (Node("number", value=factor), tree))


@lru_cache(maxsize=256)
def _try_read_tree(text: str) -> Node | None:
    try:
        return read_expression(text)
    except (UnreadableError, RecursionError):
        number = read_number(text)
        return _tree_of_calculus(text) if number is None else Node("number", value=number.value)


def _is_calculus(text: str) -> bool:
    """Returns whether a text has a sum, an integral or the like."""
    return bool(_CALCULUS.search(text))


def _tree_of_calculus(text: str) -> Node | None:
    r"""Returns the tree of the value of an expression with `\sum`, `\prod`, `\int` or `\lim`; None for other texts."""
    if not _is_calculus(text) or len(text) > _MAX_CHARS:
        return None
    # The parent enforces the deadline. 0 switches math-verify's own alarm signals off.
    parsed: list[Any] = parse(f"\\boxed{{{text}}}", extraction_config=_CONFIG, parsing_timeout=0)
    if not parsed or not isinstance(parsed[0], sympy.Expr):
        return None
    try:
        return read_expression(sympy.sstr(parsed[0].doit()))
    except UnreadableError:
        return None


def _is_step(node: Node) -> bool:
    """Returns whether a node is arithmetic on numbers that can be carried out."""
    if node.kind in ("add", "mul"):
        return _has_several_numbers(node)
    if node.kind == "div":
        above, below = (_list_rational_factors(part) for part in node.args)
        is_reducible = any(math.gcd(top.numerator, low.numerator) > 1 for top in above for low in below)
        is_fraction = any(value.denominator > 1 for value in above + below)
        return is_reducible or is_fraction or any(abs(low) < 2 for low in below)
    if names_of(node):
        return False
    if node.kind == "pow":
        base, exponent = (_compute_rational(part) for part in node.args)
        return (
            base is not None
            and exponent is not None
            and (exponent.denominator == 1 or _compute_rational(node) is not None)
        )
    return node.kind in _STEP_FUNCTIONS or (
        bool(node.args) and node.kind not in ("neg", "mixed") and _compute_rational(node) is not None
    )


def _has_several_numbers(node: Node) -> bool:
    if node.kind == "add":
        terms = [term.args[0] if term.kind == "neg" else term for term in _flatten_operands(node, "add")]
        numbers = [term for term in terms if not names_of(term)]
        return sum(_compute_rational(term) is not None for term in numbers) > 1 or len(set(numbers)) < len(numbers)
    return sum(abs(value) != 1 for value in _list_rational_factors(node)) > 1


def _list_rational_factors(node: Node) -> list[Fraction]:
    """Returns the rational factors of a product."""
    factors = _flatten_operands(node, "mul") if node.kind == "mul" else [node]
    return [value for value in map(_compute_rational, factors) if value is not None]


def _flatten_operands(node: Node, kind: str) -> list[Node]:
    return [part for arg in node.args for part in (_flatten_operands(arg, kind) if arg.kind == kind else [arg])]


def _compute_rational(node: Node) -> Fraction | None:
    if names_of(node) or any(part.kind == "constant" for part in nodes_of(node)):
        return None
    try:
        value = number_of(node)
    except NoValueError:
        return None
    return value if isinstance(value, Fraction) else None
