"""How much of a reference program's structure and data flow another program has. Python only.

PPOCoder and CodeBLEU parse six languages with tree-sitter; this reads Python with the standard library's `ast`, so that
a program that does not parse has nothing in common with any other (tree-sitter would still give parts of a tree).

Trees are walked without recursion: a program of the policy may be nested as deep as it likes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from verl_agentic.errors import DataError
from verl_agentic.python_source import parse_python

MAX_CHARS = 100_000
"""A longer program counts as one that does not compile."""
_Numbers = dict[tuple[int, ...], int]


def parse(source: str) -> ast.Module | None:
    """Returns the tree of a program that compiles; None for any other."""
    return parse_python(source, compiles=True) if len(source) <= MAX_CHARS else None


def is_empty_program(tree: ast.Module) -> bool:
    """Returns whether a program does nothing: no statement but `pass` and bare constants."""
    return all(
        isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in tree.body
    )


def parse_reference(source: str) -> ast.Module:
    """Returns the tree of a reference program.

    Raises:
        DataError: it does not compile, or is empty.
    """
    tree = parse(source)
    if tree is None or not tree.body:
        raise DataError(f"a reference solution must be Python that compiles, got {source[:200]!r}; mend the row")
    return tree


def ast_match(candidate: ast.Module, reference: ast.Module) -> float:
    """Returns which share of the reference's subtrees the candidate has, from 0 to 1.

        |subtrees(candidate) & subtrees(reference)| / |subtrees(reference)|

    A subtree is a node with at least one child and all that is below it, as kinds of nodes: names and constants do not
    count. One that the reference has twice must be there twice (CodeBLEU's code wants it once).
    """
    shapes: dict[tuple[str, tuple[int, ...]], int] = {}
    found, wanted = _subtrees(candidate, shapes), _subtrees(reference, shapes)
    return (found & wanted).total() / wanted.total() if wanted else 0.0


def data_flow_match(candidate: ast.Module, reference: ast.Module) -> float:
    """Returns which share of the reference's data flow edges the candidate has, from 0 to 1; 0 where it has none.

        |edges(candidate) & edges(reference)| / |edges(reference)|

    An edge says of which variables a variable is computed: by assignments, loops, comprehensions, `with`, `:=`,
    `return` and `yield`. Variables are numbered as they first appear in edges, so other names for them change nothing.
    An object whose attribute or item is set is itself the variable. CodeBLEU has edges from uses to definitions, too.
    """
    lists: _Numbers = {}
    found, wanted = Counter(_edges(candidate, lists)), Counter(_edges(reference, lists))
    return (found & wanted).total() / wanted.total() if wanted else 0.0


def _subtrees(tree: ast.Module, shapes: dict[tuple[str, tuple[int, ...]], int]) -> Counter[int]:
    """Returns how often each subtree occurs; `shapes` numbers them, the same ones alike in all trees."""
    counts: Counter[int] = Counter()
    numbers: dict[int, int] = {}
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, is_done = stack.pop()
        children = _children(node)
        if not is_done:
            stack.append((node, True))
            stack += [(child, False) for child in children]
            continue
        shape = (type(node).__name__, tuple(numbers[id(child)] for child in children))
        numbers[id(node)] = shapes.setdefault(shape, len(shapes))
        if children:
            counts[numbers[id(node)]] += 1
    return counts


def _children(node: ast.AST) -> list[ast.AST]:
    # Whether a name is read or set shows in the node above it.
    return [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and all below it as they stand in the source."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(ast.iter_child_nodes(node)))


def _edges(tree: ast.Module, lists: _Numbers) -> Iterator[tuple[int, int]]:
    """Yields (variable, list of variables that it is computed of), both as numbers; `lists` numbers the latter."""
    numbers: dict[str, int] = {}
    for node in _walk(tree):
        for targets, source in _flows(node):
            parents = tuple(numbers.setdefault(name, len(numbers)) for name in _read(source))
            number = lists.setdefault(parents, len(lists))  # a tuple is hashed anew each time, and may be long
            for name in targets:
                yield numbers.setdefault(name, len(numbers)), number


def _flows(node: ast.AST) -> Iterator[tuple[list[str], ast.AST]]:
    """Yields (names that get a value, the expression of that value)."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield [name for target in targets for name in _bound(target)], value
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield _bound(target), value
        case ast.AugAssign(target=target):
            yield _bound(target), node
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield _bound(target), value
        case ast.comprehension(target=target, iter=value):
            yield _bound(target), value
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield _bound(target), value
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value) | ast.YieldFrom(value=value):
            yield ["return"], value  # no variable can have that name


def _bound(target: ast.AST) -> list[str]:
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


def _read(value: ast.AST) -> list[str]:
    """Returns the names in an expression (of `x += y`, in the statement), each once, as they first appear."""
    return list(dict.fromkeys(node.id for node in _walk(value) if isinstance(node, ast.Name)))
