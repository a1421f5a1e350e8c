"""Similarity of the structure and data flow of two Python programs.

PPOCoder and CodeBLEU parse six languages with tree-sitter. This module uses `ast`, so a program that does not parse
scores 0 (tree-sitter would give a partial tree). Trees are walked without recursion, because programs may be nested
deeply.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from verl_agentic.base.errors import DataError
from verl_agentic.base.text.python_source import parse_python

MAX_CHARS = 100_000
"""Maximum length; longer programs count as not compiling."""
_Numbers = dict[tuple[int, ...], int]


def parse(source: str) -> ast.Module | None:
    """Returns the tree of a program, or None if it does not compile."""
    return parse_python(source, compiles=True) if len(source) <= MAX_CHARS else None


def is_empty_program(tree: ast.Module) -> bool:
    """Returns whether a program has only `pass` and bare constants."""
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in tree.body
    )


def parse_reference(source: str) -> ast.Module:
    """Returns the tree of a reference program. Raises DataError if the program does not compile or is empty."""
    tree = parse(source)
    if tree is None or not tree.body:
        raise DataError(f"a reference solution must be Python that compiles, got {source[:200]!r}; fix the row")
    return tree


def ast_match(candidate: ast.Module, reference: ast.Module) -> float:
    """Returns the share of the reference's subtrees that the candidate has, from 0 to 1.

        |subtrees(candidate) & subtrees(reference)| / |subtrees(reference)|

    A subtree is a node with at least one child and its descendants, as node types without names and constants. A
    subtree that the reference has twice must occur twice (in CodeBLEU's code, once).
    """
    shapes: dict[tuple[str, tuple[int, ...]], int] = {}
    subtrees, reference_subtrees = _count_subtrees(candidate, shapes), _count_subtrees(reference, shapes)
    return (subtrees & reference_subtrees).total() / reference_subtrees.total() if reference_subtrees else 0.0


def data_flow_match(candidate: ast.Module, reference: ast.Module) -> float:
    """Returns the share of the reference's data flow edges that the candidate has, from 0 to 1.

        |edges(candidate) & edges(reference)| / |edges(reference)|

    An edge links a variable to the variables it is computed from, by assignments, loops, comprehensions, `with`, `:=`,
    `return` and `yield`. Variables are numbered by first appearance, so their names do not matter. Setting an attribute
    or item counts for the object. CodeBLEU also has edges from uses to definitions.
    """
    lists: _Numbers = {}
    edges, reference_edges = Counter(_iter_edges(candidate, lists)), Counter(_iter_edges(reference, lists))
    return (edges & reference_edges).total() / reference_edges.total() if reference_edges else 0.0


def _count_subtrees(tree: ast.Module, shapes: dict[tuple[str, tuple[int, ...]], int]) -> Counter[int]:
    """Returns the count of each subtree; `shapes` gives equal subtrees equal numbers in all trees."""
    counts: Counter[int] = Counter()
    numbers: dict[int, int] = {}
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, is_done = stack.pop()
        children = _list_children(node)
        if not is_done:
            stack.append((node, True))
            stack += [(child, False) for child in children]
            continue
        shape = (type(node).__name__, tuple(numbers[id(child)] for child in children))
        numbers[id(node)] = shapes.setdefault(shape, len(shapes))
        if children:
            counts[numbers[id(node)]] += 1
    return counts


def _list_children(node: ast.AST) -> list[ast.AST]:
    # The parent node shows whether a name is read or set.
    return [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]


def _walk_in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and its descendants in source order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(ast.iter_child_nodes(node)))


def _iter_edges(tree: ast.Module, lists: _Numbers) -> Iterator[tuple[int, int]]:
    """Yields (variable, list of variables that it is computed of), both as numbers; `lists` numbers the latter."""
    numbers: dict[str, int] = {}
    for node in _walk_in_order(tree):
        for targets, source in _iter_flows(node):
            parents = tuple(numbers.setdefault(name, len(numbers)) for name in _list_read_names(source))
            number = lists.setdefault(parents, len(lists))  # hashing a long tuple each time would be slow
            for name in targets:
                yield numbers.setdefault(name, len(numbers)), number


def _iter_flows(node: ast.AST) -> Iterator[tuple[list[str], ast.AST]]:
    """Yields (names that get a value, the expression of that value)."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield [name for target in targets for name in _list_bound_names(target)], value
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield _list_bound_names(target), value
        case ast.AugAssign(target=target):
            yield _list_bound_names(target), node
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield _list_bound_names(target), value
        case ast.comprehension(target=target, iter=value):
            yield _list_bound_names(target), value
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield _list_bound_names(target), value
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value) | ast.YieldFrom(value=value):
            yield ["return"], value  # no variable can have that name


def _list_bound_names(target: ast.AST) -> list[str]:
    names: list[str] = []
    stack = [target]
    while stack:
        match stack.pop():
            case ast.Name(id=name):
                names.append(name)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                stack += reversed(elements)
            case ast.Starred(value=inner) | ast.Attribute(value=inner) | ast.Subscript(value=inner):
                stack.append(inner)
    return names


def _list_read_names(value: ast.AST) -> list[str]:
    """Returns the names in an expression (of `x += y`, in the statement), each once, as they first appear."""
    return list(dict.fromkeys(node.id for node in _walk_in_order(value) if isinstance(node, ast.Name)))
