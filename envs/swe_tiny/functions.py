"""Templates of short functions, the bugs that they may have, and an interpreter with a budget of steps.

In the lines of a template, `<op>` marks an operator that a bug may replace. Words are separated by spaces, so that a
tokenizer of words writes them with few tokens.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.base.text.python_source import parse_python

NAMES = ("scale", "clip", "pick", "gap", "total", "count", "keep", "merge", "shift", "rate", "near", "fold")
VARIABLES = (("a", "b"), ("x", "y"), ("n", "k"), ("lo", "hi"), ("p", "q"), ("u", "v"))
TEMPLATES: Mapping[str, Sequence[str]] = {
    "wrap": ("r = {a} <+> {b}", "if r <>> {c} :", "    r = r <-> {c}", "return r"),
    "least": ("if {a} <<> {b} :", "    return {b} <-> {a}", "return {a} <*> {c}"),
    "sum_from": ("r = {c}", "for i in range ( {a} ) :", "    if i <>=> {b} :", "        r = r <+> i", "return r"),
    "either": ("if {a} <==> {b} or {a} <<> {c} :", "    return {a}", "return {a} <+> {b}"),
    "down": ("r = {a} <*> {c}", "while r <>> {b} :", "    r = r <-> {c}", "return r"),
    "series": ("r = 0", "for i in range ( {b} ) :", "    r = r <+> {a} <*> i", "return r"),
    "floor": ("if {a} <>=> {c} :", "    {a} = {a} <-> {c}", "return {a} <*> {b}"),
    "most": ("m = {a}", "if {b} <>> m :", "    m = {b}", "return m <+> {c}"),
}
HELD_OUT: Mapping[str, Sequence[str]] = {
    "bound": ("if {a} <>> {b} :", "    return {b}", "if {a} <<> {c} :", "    return {c}", "return {a}"),
    "steps": ("r = {b}", "for i in range ( {c} ) :", "    r = r <*> {a}", "return r <-> {a}"),
}
"""Templates that no training row has."""
FLIPS = {
    "+": ("-", "*"), "-": ("+",), "*": ("+",), ">": ("<", ">="), "<": (">", "<="), ">=": ("<", ">"), "==": ("!=",)
}  # fmt: skip
"""Operator -> what a bug makes of it."""
INPUTS = ((0, 0), (1, 2), (2, 1), (3, 3), (5, 2), (2, 5), (7, 4), (4, 9), (6, 6), (9, 1))
"""Arguments of the tests."""
_PLACE = re.compile(r"<(\+|-|\*|>=|<=|==|>|<)>")
_MAX_STEPS = 400
_BINARY: Mapping[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_COMPARE: Mapping[type, Any] = {
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_MAX_NUMBER = 10**9


def written(template: Sequence[str], *, variables: tuple[str, str], constant: int) -> list[str]:
    """Returns the lines of a function's body with names and a constant; the marks of operators stay."""
    a, b = variables
    return [line.replace("{a}", a).replace("{b}", b).replace("{c}", str(constant)) for line in template]


def places(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Returns line, column and operator of every place in which a bug may be."""
    return [(index, match.start(), match[1]) for index, line in enumerate(lines) for match in _PLACE.finditer(line)]


def with_operator(lines: Sequence[str], place: tuple[int, int, str], new: str) -> list[str]:
    """Returns the lines with another operator at a place."""
    index, column, old = place
    changed = f"{lines[index][:column]}<{new}>{lines[index][column + len(old) + 2 :]}"
    return [*lines[:index], changed, *lines[index + 1 :]]


def plain(lines: Sequence[str]) -> list[str]:
    """Returns the lines without marks."""
    return [_PLACE.sub(r"\1", line) for line in lines]


def results(source: str) -> list[int] | None:
    """Returns what the only function of a source returns for `INPUTS`.

    None: it is no such function, an operation is not one of the templates', or a call takes too many steps. Nothing of
    it is run by Python: an interpreter of the few constructs of the templates computes it.
    """
    tree = parse_python(source)
    body = [] if tree is None else tree.body
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or len(body[0].args.args) != 2:
        return None
    names = [argument.arg for argument in body[0].args.args]
    try:
        return [_Call(dict(zip(names, pair, strict=True))).value(body[0].body) for pair in INPUTS]
    except (_NotAllowed, RecursionError):
        return None


class _NotAllowed(Exception):
    """The source has another construct, or takes too long."""


class _Return(Exception):
    """Carries the value of a return statement."""

    def __init__(self, value: int) -> None:
        self.value = value


class _Call:
    """One call of a function."""

    def __init__(self, variables: dict[str, int]) -> None:
        self._variables = variables
        self._left = _MAX_STEPS

    def value(self, body: Sequence[ast.stmt]) -> int:
        """Returns the value that the body returns."""
        try:
            self._run_body(body)
        except _Return as returned:
            return returned.value
        raise _NotAllowed("no return")

    def _run_body(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self._count_step()
            match node:
                case ast.Return(value=ast.expr() as value):
                    raise _Return(self._evaluate_number(value))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._variables[name] = self._evaluate_number(value)
                case ast.If(test=test, body=then, orelse=otherwise):
                    self._run_body(then if self._evaluate_number(test) else otherwise)
                case ast.While(test=test, body=then, orelse=[]):
                    while self._evaluate_number(test):
                        self._run_body(then)
                case ast.For(
                    target=ast.Name(id=name),
                    iter=ast.Call(func=ast.Name(id="range"), args=[count], keywords=[]),
                    body=then,
                    orelse=[],
                ):
                    for number in range(self._evaluate_number(count)):
                        self._variables[name] = number
                        self._run_body(then)
                case _:
                    raise _NotAllowed(type(node).__name__)

    def _evaluate_number(self, node: ast.expr) -> int:
        self._count_step()
        match node:
            case ast.Constant(value=int(value)) if type(value) is int and value <= _MAX_NUMBER:
                return value
            case ast.Name(id=name) if name in self._variables:
                return self._variables[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                number = _BINARY[type(op)](self._evaluate_number(left), self._evaluate_number(right))
                if abs(number) > _MAX_NUMBER:
                    raise _NotAllowed("a large number")
                return number
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return int(_COMPARE[type(op)](self._evaluate_number(left), self._evaluate_number(right)))
            case ast.BoolOp(op=ast.Or(), values=values):
                return int(any(self._evaluate_number(value) for value in values))
        raise _NotAllowed(type(node).__name__)

    def _count_step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _NotAllowed("too many steps")
