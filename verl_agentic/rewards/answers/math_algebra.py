"""Compares two expressions by symbolic algebra, in the children of `rewards.answers.math_worker`.

Cheap checks come first: nesting depth, size of powers and factorials, and numeric values. They reject most expressions
on which algebra does not terminate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import mpmath
import sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

from verl_agentic.rewards.answers.math_notation import closing_place, depth
from verl_agentic.rewards.answers.math_units import Unit, split_unit

_MAX_DEPTH = 24
_MAX_LOG10 = 5_000.0
_MAX_FACTORIAL = 3_000
_MAX_NODES = 2_000
_DIGITS = 50
_FAR, _NOISE = mpmath.mpf(10) ** -4, mpmath.mpf(10) ** -35
_SAMPLES = tuple(map(mpmath.mpf, ("0.731", "1.377", "2.193", "0.419", "1.853", "0.277")))
_STEPS = re.compile(r"\\(?:[dt]?binom|choose|gcd|lcm|det|sum|prod|int|lim)(?![a-zA-Z])|!")
_FRACTIONS = re.compile(r"\\frac\s*\{\s*-?(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(?<![\d.^}])(\d+)\s*/\s*(\d+)")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*\{")
_LARGE = re.compile(r"\d{5}|\^|!|\\")
_TOWER = re.compile(r"\d\s*\^\s*\{?\s*(\d{1,9})\s*\^\s*\{?\s*(\d{1,9})")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\{\\circ\}")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_RELATION = re.compile(r"\\(?:not|neg|lnot|neq?|leq?|geq?|approx|sim|[lg]t|equiv|pm|mp)(?![a-zA-Z])|[<>!~]")
_MIXED = re.compile(r"(?<![\d.])(\d+) (\d+)/(\d+)(?!\d)")
_PRODUCT = re.compile(r"(?<![_^]\d)(?<=[\d)])\s*(\(\s*-?\d+(?:\.\d+)?\s*\))")
_CONFIG = [
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="all")
    )
]


_FUNCTIONS = {
    sympy.sin: "sin", sympy.cos: "cos", sympy.tan: "tan", sympy.asin: "asin", sympy.acos: "acos", sympy.atan: "atan",
    sympy.log: "log", sympy.Abs: "fabs",
}  # fmt: skip
_KNOWN = (sympy.Add, sympy.Mul, sympy.Pow, sympy.exp, sympy.factorial, *_FUNCTIONS)


class TruthError(ValueError):
    """The ground truth is not an expression."""


class _HugeError(ArithmeticError):
    """A number with too many digits."""


class _UnknownError(ArithmeticError):
    """An expression without a simple value."""


def judge(answer: str, truth: str, *, must_be_evaluated: bool = False) -> bool:
    """Returns whether two expressions are equal, and evaluated if required.

    Args:
        answer: the policy's answer, as `math_notation.tidy` returns it.
        truth: the ground truth, as `math_notation.tidy` returns it.
        must_be_evaluated: ignored if the truth itself is not evaluated.

    Raises:
        TruthError: the truth cannot be read.
    """
    truth, truths_unit = split_unit(truth)
    gold = _parsed(truth)
    if not gold:
        raise TruthError("the ground truth is no mathematical expression")
    answer, unit = split_unit(answer)
    if not _is_sane(answer, truth) or not _may_be_one(unit, truths_unit):
        return False
    predicted = _parsed(answer)
    if must_be_evaluated and not is_unevaluated(gold[0], truth) and is_unevaluated(predicted[0], answer):
        return False
    return any(_are_equal(*pair) for pair in _readings(gold, predicted))


def is_unevaluated(expression: Any, text: str) -> bool:
    r"""Returns whether an expression is not fully evaluated: `12\cdot34`, `2^{10}`, `\frac{84}{2}`, `\sqrt{16}`."""
    if _STEPS.search(text):
        return True
    for found in _FRACTIONS.finditer(text):
        top, low = int(found[1] or found[3]), int(found[2] or found[4])
        if low < 2 or math.gcd(top, low) > 1:
            return True
    return isinstance(expression, (sympy.Basic, sympy.MatrixBase)) and any(map(_is_step, _nodes(expression)))


def _parsed(text: str) -> list[Any]:
    text = _PRODUCT.sub(r"\\times \1", _MIXED.sub(r"\1\\frac{\2}{\3}", text))
    if _TRIGONOMETRY.search(text):
        text = _DEGREES.sub(r"(\\frac{\1}{180}\\pi)", text)
    # The parent enforces the deadline. 0 and None switch math-verify's own alarm signals off.
    return parse(f"\\boxed{{{text}}}", extraction_config=_CONFIG, parsing_timeout=0)


def _is_sane(answer: str, truth: str) -> bool:
    """Returns whether the text of an answer is suitable for algebra."""
    if not answer or depth(answer) > max(_MAX_DEPTH, depth(truth) + 4) or abs(_open(answer)) > 1 + abs(_open(truth)):
        return False
    if _has_tower(answer) and not _has_tower(truth):
        return False
    relation = _RELATION.match(answer)
    if relation and not _RELATION.match(truth):
        return False
    if re.search(r"\d \d", _MIXED.sub("", answer)) and not re.search(r"\d \d", truth):
        return False  # `4 2` is neither a product nor 42
    return not any(map(_is_large, _choices(answer))) or any(map(_is_large, _choices(truth)))


def _open(text: str) -> int:
    """Returns the number of unclosed brackets."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


def _has_tower(text: str) -> bool:
    """Returns whether a text has a power of a power with too many digits."""
    return any(
        int(found[2]) * math.log10(int(found[1]) or 1) > math.log10(_MAX_LOG10) for found in _TOWER.finditer(text)
    )


def _choices(text: str) -> Iterator[str]:
    for found in _BINOMIAL.finditer(text):
        start = found.end() - 1
        for _ in range(2):
            end = closing_place(text, start) if text[start : start + 1] == "{" else -1
            yield text[start + 1 : end] if end > 0 else "^"
            start = end + 1


def _is_large(argument: str) -> bool:
    return _LARGE.search(argument) is not None


def _may_be_one(unit: Unit | None, truths: Unit | None) -> bool:
    return unit is None or truths is None or unit == truths


def _readings(gold: list[Any], predicted: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yields both sides as written, and with `i` as the imaginary unit."""
    yield gold, predicted
    if any(map(_imaginary_symbols, (*gold, *predicted))):
        yield list(map(_with_i, gold)), list(map(_with_i, predicted))


def _imaginary_symbols(expression: Any) -> list[Any]:
    return [symbol for symbol in getattr(expression, "free_symbols", ()) if str(symbol) == "i"]


def _with_i(expression: Any) -> Any:
    found = _imaginary_symbols(expression)
    return expression.subs(found[0], sympy.I) if found else expression


def _are_equal(gold: list[Any], predicted: list[Any]) -> bool:
    if not predicted:
        return False
    try:
        by_value = _equal_by_value(gold[0], predicted[0])
    except _HugeError:
        return False
    return (
        bool(verify(gold, predicted, allow_set_relation_comp=True, timeout_seconds=None))
        if by_value is None
        else by_value
    )


def _equal_by_value(gold: Any, predicted: Any) -> bool | None:
    """Returns whether two expressions have the same value, or None if values do not decide.

    Tries roots of negative numbers as complex and as real.

    Raises:
        _HugeError: the prediction has a number that is too large for algebra, and the gold has none.
    """
    if isinstance(predicted, sympy.Eq) and isinstance(gold, sympy.Expr):
        predicted = predicted.rhs
    is_plain = isinstance(gold, sympy.Expr) and isinstance(predicted, sympy.Expr)
    verdicts: list[bool | None] = []
    with mpmath.workdps(_DIGITS):
        for has_real_roots in (False, True):
            try:
                wanted = [_value(part, has_real_roots=has_real_roots) for part in _parts(gold)]
            except (_HugeError, _UnknownError):
                return None
            values = [_value_or_none(part, has_real_roots=has_real_roots) for part in _parts(predicted)]
            if not is_plain or len(wanted) != 1 or len(values) != 1 or values[0] is None:
                return None
            verdicts.append(_is_same(wanted[0], values[0], is_number=not gold.free_symbols | predicted.free_symbols))
    return True if True in verdicts else None if None in verdicts else False


def _is_same(left: Any, right: Any, *, is_number: bool) -> bool | None:
    apart, size = abs(left - right), max(abs(left), abs(right))
    if apart > _FAR * size and apart > _NOISE:
        return False
    return True if is_number and apart <= _NOISE * max(size, _NOISE) else None


def _value_or_none(expression: Any, *, has_real_roots: bool) -> Any:
    try:
        return _value(expression, has_real_roots=has_real_roots)
    except _UnknownError:
        return None


def _parts(expression: Any) -> list[Any]:
    """Returns the elements of a set, tuple, relation or matrix."""
    if isinstance(expression, sympy.Expr) and not isinstance(expression, sympy.MatrixExpr):
        return [expression]
    if isinstance(expression, sympy.MatrixBase):
        return list(expression.flat())
    arguments = getattr(expression, "args", ()) if isinstance(expression, sympy.Basic) else ()
    return [part for one in arguments for part in _parts(one)]


def _value(expression: Any, *, has_real_roots: bool = False) -> Any:
    """Returns the numeric value of an expression, with fixed values for its symbols."""
    names = sorted(str(symbol) for symbol in expression.free_symbols)
    if len(names) > len(_SAMPLES) or sum(1 for _ in _nodes(expression)) > _MAX_NODES:
        raise _UnknownError
    try:
        value = _evaluated(expression, dict(zip(names, _SAMPLES, strict=False)), has_real_roots=has_real_roots)
    except (_HugeError, _UnknownError):
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise _UnknownError from cause
    if not mpmath.isfinite(value):
        raise _UnknownError
    return value


def _evaluated(node: Any, symbols: dict[str, Any], *, has_real_roots: bool) -> Any:
    if isinstance(node, sympy.Symbol):
        return symbols[str(node)]
    if isinstance(node, sympy.Rational):
        return mpmath.mpf(node.p) / node.q
    if isinstance(node, (sympy.Float, sympy.NumberSymbol)):
        return node._to_mpmath(mpmath.mp.prec)
    if node is sympy.I:
        return mpmath.mpc(0, 1)
    if not isinstance(node, _KNOWN):
        raise _UnknownError
    arguments = [_evaluated(one, symbols, has_real_roots=has_real_roots) for one in node.args]
    if isinstance(node, sympy.Add):
        return mpmath.fsum(arguments)
    if isinstance(node, sympy.Mul):
        return mpmath.fprod(arguments)
    if isinstance(node, sympy.Pow):
        exponent: Any = node.exp
        is_odd_root = has_real_roots and exponent.is_Rational and exponent.q % 2 == 1
        if is_odd_root and mpmath.im(arguments[0]) == 0 and mpmath.re(arguments[0]) < 0:
            return (-1) ** exponent.p * _power(-mpmath.re(arguments[0]), arguments[1])
        return _power(*arguments)
    if isinstance(node, sympy.exp):
        return _power(mpmath.e, *arguments)
    if isinstance(node, sympy.factorial):
        if abs(arguments[0]) > _MAX_FACTORIAL:
            raise _HugeError
        return mpmath.factorial(arguments[0])
    return getattr(mpmath, _FUNCTIONS[node.func])(*arguments)


def _power(base: Any, exponent: Any) -> Any:
    if base == 0 or exponent == 0:
        return mpmath.power(base, exponent)
    if abs(exponent) * abs(mpmath.log10(abs(base))) > _MAX_LOG10:
        raise _HugeError
    return mpmath.power(base, exponent)


def _nodes(expression: Any) -> Iterator[Any]:
    stack = list(expression.flat()) if isinstance(expression, sympy.MatrixBase) else [expression]
    while stack:
        node = stack.pop()
        yield node
        stack += getattr(node, "args", ())


def _is_step(node: Any) -> bool:
    """Returns whether a node can be evaluated further."""
    if isinstance(node, (sympy.Add, sympy.Mul)):
        return _leaves_a_sum_or_product(node)
    if not isinstance(node, (sympy.Pow, sympy.Function)) or node.free_symbols or isinstance(node, sympy.exp):
        return False
    if isinstance(node, sympy.Pow):
        base, exponent = node.args
        if exponent == -1 or not (base.is_Rational and exponent.is_Rational):
            return False
        return exponent.is_Integer or bool(sympy.Pow(base, exponent).is_Rational)
    if isinstance(node, sympy.factorial):
        return True
    try:
        _value(node)
        return bool(node.func(*node.args).is_Rational)
    except ArithmeticError:
        return False


def _leaves_a_sum_or_product(node: Any) -> bool:
    kind = type(node)
    terms = [part for one in node.args for part in (one.args if isinstance(one, kind) else (one,))]
    if kind is sympy.Add:
        numbers = [term for term in terms if not term.free_symbols and not term.has(sympy.I)]
        return sum(term.is_Rational for term in numbers) > 1 or len(set(map(str, numbers))) < len(numbers)
    tops = [term for term in terms if term.is_Rational and abs(term) != 1]
    lows = [term.base for term in terms if isinstance(term, sympy.Pow) and term.exp == -1 and term.base.is_Rational]
    return len(tops) > 1 or len(lows) > 1 or bool(tops and lows and sympy.gcd(tops[0], lows[0]) != 1)
