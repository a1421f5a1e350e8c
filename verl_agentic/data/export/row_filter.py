"""Conditions on the rows of a log, such as `acc >= 1 and numbers["reward/format"] > 0`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from verl_agentic.base.errors import ConfigError

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda item, of: item in of,
    ast.NotIn: lambda item, of: item not in of,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
Row = Mapping[str, Any]
_Value = Callable[[Row], Any]


class RowFilter:
    """A condition over columns: comparisons, `in`, `and`, `or`, `not`, arithmetic, and `column["key"]` of a map.

    The text is parsed and never run as Python. An unknown value (null, a missing key) makes every comparison and
    every sum unknown, and a row passes only if the condition is true.
    """

    def __init__(self, text: str, *, columns: frozenset[str]) -> None:
        """Parses a condition.

        Raises:
            ConfigError: it is not a condition, or names an unknown column.
        """
        self.text = text
        self._columns = columns
        try:
            self._passes = self._compile_node(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError) as cause:
            raise ConfigError(f"a condition compares columns, such as acc >= 1, got {text!r}: {cause}") from cause

    def passes(self, row: Row) -> bool:
        """Returns whether the condition is true for a row.

        Raises:
            ConfigError: it compares values of different types.
        """
        try:
            return self._passes(row) is True
        except (TypeError, ArithmeticError) as cause:
            raise ConfigError(
                f"the condition {self.text!r} fails on a row, got {cause}; compare equal types"
            ) from cause

    def _compile_node(self, node: ast.AST) -> _Value:
        match node:
            case ast.Constant(value=str() | int() | float() | bool() | None as value):
                return lambda row: value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                values = [self._compile_node(item) for item in items]
                return lambda row: [value(row) for value in values]
            case ast.Name(id=name):
                if name not in self._columns:
                    raise ValueError(f"no column {name!r}; known: {', '.join(sorted(self._columns))}")
                return lambda row: row[name]
            case ast.Subscript(value=ast.Name() as column, slice=ast.Constant(value=str() as key)):
                of = self._compile_node(column)
                return lambda row: (of(row) or {}).get(key)
            case ast.BoolOp(op=op, values=parts):
                return _join_conditions([self._compile_node(part) for part in parts], decides=isinstance(op, ast.Or))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _apply_to_known(_OPERATORS[type(op)], [self._compile_node(operand)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _apply_to_known(_OPERATORS[type(op)], [self._compile_node(left), self._compile_node(right)])
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _OPERATORS for op in ops):
                sides = [self._compile_node(side) for side in (left, *others)]
                pairs = zip(ops, sides[:-1], sides[1:], strict=True)
                return _join_conditions(
                    [_apply_to_known(_OPERATORS[type(op)], [a, b]) for op, a, b in pairs], decides=False
                )
        raise ValueError(f"{ast.unparse(node)!r} is not supported")


def _apply_to_known(function: Callable[..., Any], values: list[_Value]) -> _Value:
    """Returns a function of known values; None if one of them is unknown."""

    def value(row: Row) -> Any:
        operands = [value(row) for value in values]
        return None if None in operands else function(*operands)

    return value


def _join_conditions(values: list[_Value], *, decides: bool) -> _Value:
    """Returns `or` (decides: True) or `and` (decides: False) of values, which may be unknown."""

    def value(row: Row) -> bool | None:
        operands = [value(row) for value in values]
        if any(operand is not None and bool(operand) is decides for operand in operands):
            return decides
        return None if None in operands else not decides

    return value
