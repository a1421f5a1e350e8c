"""Values of expressions: exact fractions where they are rational, else numbers with digits in proportion to their size.

Two expressions with variables are equal if they are at several points, as in the lemma of Schwartz and Zippel.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import mpmath
from sympy import integer_nthroot

from verl_agentic.graders.maths.forms.math_expressions import Node, names_of, nodes_of

_MAX_BITS = 200_000
_MAX_LOG10 = 5_000
_MAX_ROOT = 100
_DIGITS = 60
_EXACT_DIGITS = 40_000
"""More than any value has, so that differences of values are not rounded."""
_POINTS = 6
_POSITIVE_POINTS = 2
"""At the first points all variables are positive, at the next one all are negative, at the others they are mixed."""


class NoValueError(ArithmeticError):
    """An expression without a value, or with a too large one."""


class Reading(NamedTuple):
    """Meaning of ambiguous notation."""

    is_log_decimal: bool = True
    is_i_imaginary: bool = True
    has_real_roots: bool = True
    """Whether an odd root of a negative number is the real one."""


def have_same_value(expression: Node, other: Node) -> bool:
    """Returns whether two expressions have the same value for all values of their variables."""
    if expression == other:
        return True
    return any(_are_same(expression, other, reading) for reading in readings(expression, other))


def readings(*trees: Node) -> Iterator[Reading]:
    """Yields the readings between which expressions may differ."""
    nodes = [node for tree in trees for node in nodes_of(tree)]
    has_i = any("i" in names_of(tree) for tree in trees)
    choices = (
        (True, False) if any(node.kind == "log" and len(node.args) == 1 for node in nodes) else (True,),
        (True, False) if has_i else (True,),
        (True, False) if any(node.kind == "pow" and node.args[1].kind == "div" for node in nodes) else (True,),
    )
    yield from (Reading(*choice) for choice in product(*choices))


def are_proportional(expression: Node, other: Node) -> int:
    """Returns 1 or -1, the sign of the constant ratio of two expressions, or 0 if it is not constant."""
    first: tuple[Any, Any, Any] | None = None
    with mpmath.workdps(_EXACT_DIGITS):
        for point in range(_POINTS):
            try:
                above, below, slack = _evaluate_pair(expression, other, Reading(), point)
            except NoValueError:
                continue
            sizes = [mpmath.fabs(_to_mp(value)) for value in (above, below)]
            if not all(slack < size < mpmath.inf for size in sizes):
                return 0
            if first is None:
                first = above, below, slack
                continue
            cross, first_cross = _multiply_values(above, first[1]), _multiply_values(first[0], below)
            if isinstance(cross, Fraction) and isinstance(first_cross, Fraction):
                if cross != first_cross:
                    return 0
                continue
            error = slack * (mpmath.fabs(_to_mp(first[0])) + mpmath.fabs(_to_mp(first[1])))
            error += first[2] * (mpmath.fabs(_to_mp(above)) + mpmath.fabs(_to_mp(below)))
            if mpmath.fabs(_to_mp(cross) - _to_mp(first_cross)) > error:
                return 0
        return 0 if first is None else 1 if mpmath.re(_to_mp(first[0]) / _to_mp(first[1])) > 0 else -1


def _multiply_values(value: Any, other: Any) -> Any:
    return (
        value * other if isinstance(value, Fraction) and isinstance(other, Fraction) else _to_mp(value) * _to_mp(other)
    )


def number_of(node: Node) -> Any:
    """Returns the value of an expression as a fraction or a number of mpmath; its variables have fixed values.

    Raises:
        NoValueError: it has none.
    """
    value, _, _ = _evaluate_pair(node, Node("number"), Reading(), 0)
    return value


def _are_same(expression: Node, other: Node, reading: Reading) -> bool:
    num_points = _POINTS if names_of(expression) | names_of(other) else 1
    num_equal = 0
    for point in range(num_points):
        try:
            value, other_value, slack = _evaluate_pair(expression, other, reading, point)
        except NoValueError:
            if point < _POSITIVE_POINTS:
                return False
            continue
        if isinstance(value, Fraction) and isinstance(other_value, Fraction):
            is_equal = value == other_value
        else:
            # Expressions of positive variables may differ where one of them is not real.
            if point >= _POSITIVE_POINTS and (mpmath.im(value) or mpmath.im(other_value)):
                continue
            is_equal = bool(value == other_value or mpmath.fabs(value - other_value) <= slack)
        if not is_equal:
            return False
        num_equal += 1
    return num_equal > 0


def _evaluate_pair(expression: Node, other: Node, reading: Reading, point: int) -> tuple[Any, Any, Any]:
    """Returns both values and the error that they may have. Digits grow with the sizes of all intermediate values."""
    digits = _DIGITS
    has_whole_names = any(
        node.kind in ("factorial", "binomial") for tree in (expression, other) for node in nodes_of(tree)
    )
    for _ in range(3):
        with mpmath.workdps(digits):
            evaluator = _Evaluator(reading, point, has_whole_names=has_whole_names)
            pair = evaluator.value(expression), evaluator.value(other)
            if not all(isinstance(value, Fraction) for value in pair):
                pair = evaluator.inexact(pair[0]), evaluator.inexact(pair[1])
            size = evaluator.size
            slack = mpmath.mpf(10) ** (10 - digits + size)
        if size > _MAX_LOG10:
            break
        if digits >= _DIGITS + 3 * size:
            return *pair, slack
        digits = _DIGITS + 3 * size
    raise NoValueError


def _to_mp(value: Any) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


class _Evaluator:
    def __init__(self, reading: Reading, point: int, *, has_whole_names: bool) -> None:
        self._reading, self._point, self._has_whole_names = reading, point, has_whole_names
        self.size = 0
        """The largest decimal exponent of a value, with either sign; of inexact values only."""

    def value(self, node: Node) -> Any:
        try:
            value = self._evaluate_node(node)
        except NoValueError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as cause:
            raise NoValueError from cause
        if isinstance(value, Fraction):
            if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
                raise NoValueError
        elif not mpmath.isnan(value) and not mpmath.isinf(value):
            self._record_size(value, may_be_noise=node.kind not in ("pow", "exp", "mul", "div"))
        return value

    def _record_size(self, value: Any, *, may_be_noise: bool = False) -> None:
        size = mpmath.fabs(value)
        if size and not (may_be_noise and size < mpmath.mpf(10) ** (self.size + 15 - mpmath.mp.dps)):
            self.size = max(self.size, abs(int(mpmath.log10(size))) + 1)

    def inexact(self, value: Any) -> Any:
        """Returns a value as a number of mpmath; the digits of a fraction count as its size."""
        if isinstance(value, Fraction):
            bits = max(value.numerator.bit_length(), value.denominator.bit_length())
            self.size = max(self.size, bits * 30103 // 100000 + 1)
            value = _to_mp(value)
        return value

    def _evaluate_node(self, node: Node) -> Any:
        if node.kind == "number":
            return node.value
        if node.kind == "name":
            if node.name == "i" and self._reading.is_i_imaginary:
                return mpmath.mpc(0, 1)
            return self._sample_variable(node.name)
        if node.kind == "constant":
            return mpmath.inf if node.name == "infinity" else +getattr(mpmath, node.name)
        args = [self.value(part) for part in node.args]
        if node.kind in ("add", "mixed"):
            return self._sum_values(args)
        operation = getattr(self, f"_compute_{node.kind}", None)
        if operation is not None:
            return operation(*args)
        return getattr(mpmath, node.kind)(self.inexact(args[0]))

    def _sample_variable(self, name: str) -> Fraction:
        noise = zlib.crc32(f"{name}{self._point}".encode())
        if self._has_whole_names:
            return Fraction(noise % 97 + 3)
        value = Fraction(noise % 9973 + 3001, 5003)
        is_negative = self._point == _POSITIVE_POINTS or (self._point > _POSITIVE_POINTS and noise & 1 << 20)
        return -value if is_negative else value

    def _sum_values(self, args: list[Any]) -> Any:
        exact = sum((value for value in args if isinstance(value, Fraction)), Fraction(0))
        others = [value for value in args if not isinstance(value, Fraction)]
        return exact if not others else mpmath.fsum([self.inexact(exact), *others])

    def _compute_neg(self, value: Any) -> Any:
        return -value

    def _compute_mul(self, *factors: Any) -> Any:
        exact, rest = Fraction(1), []
        for factor in factors:
            if isinstance(factor, Fraction):
                exact *= factor
            else:
                rest.append(factor)
        if exact == 0 and not any(mpmath.isinf(factor) for factor in rest):
            return exact
        return exact if not rest else mpmath.fprod([self.inexact(exact), *rest])

    def _compute_div(self, above: Any, below: Any) -> Any:
        if below == 0:
            raise NoValueError
        if isinstance(above, Fraction) and isinstance(below, Fraction):
            return above / below
        return self.inexact(above) / self.inexact(below)

    def _compute_degrees(self, value: Any) -> Any:
        return self.inexact(value) * mpmath.pi / 180

    def _compute_pow(self, base: Any, exponent: Any) -> Any:
        if isinstance(base, Fraction) and isinstance(exponent, Fraction):
            power = self._exact_power(base, exponent)
            if power is not None:
                return power
        if base == 0 and not mpmath.re(_to_mp(exponent)) > 0:
            raise NoValueError
        low, high = self.inexact(base), self.inexact(exponent)
        if base == 0:
            return Fraction(0)
        if mpmath.fabs(high) * (1 + abs(mpmath.log10(mpmath.fabs(low)))) > _MAX_LOG10 and not mpmath.isinf(low):
            raise NoValueError
        is_odd_root = isinstance(exponent, Fraction) and exponent.denominator % 2 == 1
        if self._reading.has_real_roots and is_odd_root and mpmath.im(low) == 0 and mpmath.re(low) < 0:
            return (-1) ** exponent.numerator * mpmath.power(-low, high)
        return mpmath.power(low, high)

    def _exact_power(self, base: Fraction, exponent: Fraction) -> Fraction | None:
        power, degree = exponent.numerator, exponent.denominator
        if base == 0:
            if power > 0:
                return base
            raise NoValueError
        if degree > 1:
            if degree > _MAX_ROOT or (base < 0 and (degree % 2 == 0 or not self._reading.has_real_roots)):
                return None
            roots = [integer_nthroot(part, degree) for part in (abs(base.numerator), base.denominator)]
            if not all(is_exact for _, is_exact in roots):
                return None
            base = Fraction(int(roots[0][0]), int(roots[1][0])) * (-1 if base < 0 else 1)
        if abs(base) != 1 and abs(power) * max(base.numerator.bit_length(), base.denominator.bit_length()) > _MAX_BITS:
            raise NoValueError
        return base ** (power if abs(base) != 1 else power % 2)

    def _compute_factorial(self, value: Any) -> Any:
        number = _to_whole_number(value)
        if number > _MAX_BITS // 12:
            raise NoValueError
        return Fraction(math.factorial(number))

    def _compute_binomial(self, above: Any, below: Any) -> Any:
        total, chosen = _to_whole_number(above), _to_whole_number(below)
        if min(chosen, abs(total - chosen)) * total.bit_length() > _MAX_BITS:
            raise NoValueError
        return Fraction(math.comb(total, chosen))

    def _compute_log(self, value: Any, base: Any = None) -> Any:
        if base is None:
            base = Fraction(10) if self._reading.is_log_decimal else +mpmath.e
        if value == 0 or base in (0, 1):
            raise NoValueError
        return mpmath.log(self.inexact(value)) / mpmath.log(self.inexact(base))

    def _compute_ln(self, value: Any) -> Any:
        if value == 0:
            raise NoValueError
        return mpmath.log(self.inexact(value))

    def _compute_lg(self, value: Any) -> Any:
        return self._compute_log(value, Fraction(10))

    def _compute_exp(self, value: Any) -> Any:
        return self._compute_pow(+mpmath.e, value)

    def _compute_abs(self, value: Any) -> Any:
        return abs(value)

    def _compute_floor(self, value: Any) -> Any:
        return Fraction(math.floor(value)) if isinstance(value, Fraction) else Fraction(int(mpmath.floor(value)))

    def _compute_ceil(self, value: Any) -> Any:
        return -self._compute_floor(-value)

    def _compute_gcd(self, value: Any, other: Any) -> Any:
        return Fraction(math.gcd(_to_whole_number(value), _to_whole_number(other)))

    def _compute_lcm(self, value: Any, other: Any) -> Any:
        return Fraction(math.lcm(_to_whole_number(value), _to_whole_number(other)))

    def _compute_max(self, value: Any, other: Any) -> Any:
        return max(value, other)

    def _compute_min(self, value: Any, other: Any) -> Any:
        return min(value, other)


def _to_whole_number(value: Any) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        raise NoValueError
    return value.numerator
