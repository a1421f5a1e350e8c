"""Synthetic bugs by operators on the syntax tree. Only the bytes of one node change, so the formatting stays."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from verl_agentic.base.text.python_source import parse_python
from verl_agentic.swe.bugs.bug import Bug

_COMPARE = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_BINARY = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "//", ast.BitAnd: "|",
    ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_MAX_INT = 1000


class _Splice(NamedTuple):
    start: int
    end: int
    text: bytes


class _Source:
    """A source with byte offsets of its nodes."""

    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        self._starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[last - 1] + column

    def text(self, node: ast.expr | ast.stmt) -> bytes:
        start, end = self.span(node)
        return self.raw[start:end]

    def between(self, left: ast.expr, right: ast.expr, operator: str) -> Iterator[_Splice]:
        """Yields a new operator between two operands; nothing if brackets or comments are there."""
        start, end = self.span(left)[1], self.span(right)[0]
        if not set(self.raw[start:end]) & set(b"()#\n\\"):
            yield _Splice(start, end, f" {operator} ".encode())

    def put(self, node: ast.expr | ast.stmt, text: str | bytes) -> Iterator[_Splice]:
        """Yields another text for a node."""
        yield _Splice(*self.span(node), text.encode() if isinstance(text, str) else text)


def _flip_comparison(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from source.between(node.left, node.comparators[0], _COMPARE[type(node.ops[0])])


def _swap_arithmetic(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        yield from source.between(node.left, node.right, _BINARY[type(node.op)])


def _and_or(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.BoolOp):
        operator = "or" if isinstance(node.op, ast.And) else "and"
        yield from source.between(node.values[0], node.values[1], operator)


def _off_by_one(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < _MAX_INT:
        yield from source.put(node, str(node.value + 1))


def _flip_boolean(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield from source.put(node, str(not node.value))


def _not_removed(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from source.put(node, b"(" + source.text(node.operand) + b")")


def _condition_negated(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Constant):
        yield from source.put(node.test, b"not (" + source.text(node.test) + b")")


def _condition_dropped(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    """Drops one operand of `and` or `or`."""
    if isinstance(node, ast.BoolOp):
        for place, other in ((0, 1), (-1, -2)):
            keep = node.values[other]
            if len(node.values) == 2:
                yield from source.put(node, b"(" + source.text(keep) + b")")
            elif place == 0:
                yield _Splice(source.span(node.values[0])[0], source.span(node.values[1])[0], b"")


def _arguments_swapped(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        first, second = node.args[:2]
        texts = source.text(first), source.text(second)
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred) and texts[0] != texts[1]:
            (start, middle), (after, end) = source.span(first), source.span(second)
            yield _Splice(start, end, texts[1] + source.raw[middle:after] + texts[0])


def _keyword_removed(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Call) and node.keywords and (node.args or len(node.keywords) > 1):
        last = node.keywords[-1]
        others: list[ast.expr] = [*node.args, *(argument.value for argument in node.keywords[:-1])]
        before = max(others, key=lambda argument: source.span(argument)[1])
        if last.arg is not None and source.span(before)[1] <= source.span(last.value)[0]:
            yield _Splice(source.span(before)[1], source.span(last.value)[1], b"")


def _assignment_removed(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.AugAssign):
        yield from source.put(node, "pass")


def _call_removed(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from source.put(node, "pass")


def _slice_shifted(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                yield from source.put(bound, source.text(bound) + b" + 1")


def _loop_exit(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    if isinstance(node, ast.Break | ast.Continue):
        yield from source.put(node, "pass" if isinstance(node, ast.Break) else "break")


def _default_changed(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    """Replaces the default of `.get(key, default)` by None."""
    is_get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop")
    if isinstance(node, ast.Call) and is_get and len(node.args) == 2 and source.text(node.args[1]) != b"None":
        yield from source.put(node.args[1], "None")


def _return_none(node: ast.AST, source: _Source) -> Iterator[_Splice]:
    is_value = isinstance(node, ast.Return) and node.value is not None
    if isinstance(node, ast.Return) and is_value and not isinstance(node.value, ast.Constant):
        yield from source.put(node, "return None")


OPERATORS: dict[str, tuple[float, Callable[[ast.AST, _Source], Iterator[_Splice]]]] = {
    "comparison": (3, _flip_comparison),
    "arithmetic": (2, _swap_arithmetic),
    "and/or": (2, _and_or),
    "off by one": (3, _off_by_one),
    "boolean": (1, _flip_boolean),
    "not removed": (1, _not_removed),
    "operand of condition dropped": (3, _condition_dropped),
    "condition negated": (0.5, _condition_negated),
    "arguments swapped": (3, _arguments_swapped),
    "keyword argument removed": (3, _keyword_removed),
    "assignment removed": (3, _assignment_removed),
    "call removed": (1, _call_removed),
    "slice shifted": (2, _slice_shifted),
    "loop exit": (1, _loop_exit),
    "default changed": (2, _default_changed),
    "return None": (0.5, _return_none),
}
"""Operator -> (weight, its changes of a node). Subtle bugs weigh more than those that are easy to see."""


class Site(NamedTuple):
    """A place where an operator applies."""

    operator: str
    path: str
    unit: str
    line: int
    splice: _Splice


def mutation_sites(path: str, text: str) -> Iterator[Site]:
    """Yields the places inside of functions and classes; a source that does not parse has none."""
    tree = parse_python(text)
    if tree is None:
        return
    source = _Source(text)
    for node, unit in _iter_nodes(tree, ""):
        for operator, (_, change) in OPERATORS.items():
            for splice in change(node, source):
                yield Site(operator, path, unit, source.raw[: splice.start].count(b"\n") + 1, splice)


def mutate(site: Site, text: str) -> Bug | None:
    """Returns the bug of a place; None if the text would not compile."""
    raw = text.encode()
    broken = (raw[: site.splice.start] + site.splice.text + raw[site.splice.end :]).decode()
    if broken == text or parse_python(broken, compiles=True) is None:
        return None
    return Bug(path=site.path, broken=broken, name=f"{site.operator}, line {site.line}", unit=site.unit)


def choose_bugs(sources: Mapping[str, str], *, count: int, seed: int) -> list[Bug]:
    """Returns bugs of sources in random order, by the weights of their operators; each text once.

    Args:
        sources: path -> text.
        count: maximum number of bugs.
        seed: of the order.
    """
    sites = [site for path, text in sorted(sources.items()) for site in mutation_sites(path, text)]
    draw = random.Random(seed)
    # Weighted sampling without replacement: the largest keys u ** (1 / weight) come first.
    keys = [draw.random() ** (1 / OPERATORS[site.operator][0]) for site in sites]
    bugs: dict[tuple[str, str], Bug] = {}
    for index in sorted(range(len(sites)), key=keys.__getitem__, reverse=True):
        if len(bugs) >= count:
            break
        bug = mutate(sites[index], sources[sites[index].path])
        if bug is not None:
            bugs.setdefault((bug.path, bug.broken), bug)
    return list(bugs.values())


def _iter_nodes(node: ast.AST, unit: str) -> Iterator[tuple[ast.AST, str]]:
    """Yields the nodes inside of functions with the qualified name of their function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{unit}.{child.name}" if unit else child.name
            yield from _iter_nodes(child, inner)
            continue
        if isinstance(child, ast.JoinedStr):
            continue  # positions inside of f-strings are wrong before Python 3.12
        if unit:
            yield child, unit
        yield from _iter_nodes(child, unit)
