"""Reads in the source of adapters which attributes of verl they patch, and which they assign in another way."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import verl_agentic.plugin

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class DeclaredPatch:
    """One attribute that a call of `wrap`, `replace` or `add` names."""

    symbol: str
    kind: str
    parameters: str | None
    """Those of the function that takes the place of verl's; None for another value."""
    versions: str = ""
    """Versions of verl that are patched; empty for all."""


def source_paths() -> dict[str, Path]:
    """Returns `plugin` and every file below `verl_agentic/verl`, without its suffix, with its path."""
    package = Path(str(verl_agentic.plugin.__file__)).parent
    folder = package / "verl"
    paths = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.py"))}
    return {"plugin": package / "plugin.py", **paths}


@functools.cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    """Returns the names of `source_paths` with their syntax trees."""
    return tuple((name, ast.parse(path.read_text())) for name, path in source_paths().items())


@functools.cache
def bindings(tree: ast.Module) -> dict[str, str]:
    """Returns name -> what of verl it is bound to, as `module:name`, or `module:` for a module."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and is_verl(node.module):
            for alias in node.names:
                is_module = _is_module(f"{node.module}.{alias.name}")
                symbol = f"{node.module}.{alias.name}:" if is_module else f"{node.module}:{alias.name}"
                bound[alias.asname or alias.name] = symbol
        if isinstance(node, ast.Import):
            names = [(alias.asname or alias.name, alias.name) for alias in node.names]
            bound |= {name: f"{module}:" for name, module in names if is_verl(module) and "." not in name}
    return bound


def declared_patches(tree: ast.Module) -> Iterator[DeclaredPatch]:
    """Yields what a file patches of verl; owners must be imported names, and attributes literals."""
    if not _imported(tree):
        return
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            for decorator in node.decorator_list:
                if _kind(tree, decorator) == "wrap":
                    yield from _declared(tree, decorator, node)
        elif isinstance(node, ast.Call) and _kind(tree, node.func) == "wrap":
            yield from _declared(tree, node.func, functions[ast.unparse(node.args[0])])
        elif _kind(tree, node) in ("replace", "add") and isinstance(node, ast.Call):
            yield from _declared(tree, node, functions.get(ast.unparse(node.args[2])))


def assigned_attributes(tree: ast.Module) -> Iterator[str]:
    """Yields every statement that sets or deletes an attribute of something of verl without `verl.patching`."""
    names = set(bindings(tree))
    for node in ast.walk(tree):  # aliases: `_engine = cast("Any", Engine)`, `for _cls in (A, B)`
        if isinstance(node, ast.Assign) and _names_one_of(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _names_one_of(node.value, names):
            names |= {node.target.id} if isinstance(node.target, ast.Name) else set()
        elif isinstance(node, ast.For) and any(_names_one_of(part, names) for part in ast.walk(node.iter)):
            names |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _names_one_of(node.value, names):
            yield ast.unparse(node)
        sets = isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr") and node.args
        if sets and _names_one_of(node.args[0], names):
            yield ast.unparse(node)


@functools.cache
def _verl_methods() -> frozenset[str]:
    """Returns the names of all methods of verl's classes."""
    folder = Path(str(importlib.util.find_spec("verl").origin)).parent  # pyright: ignore
    method = re.compile(r"^    (?:async )?def (\w+)\(", re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return frozenset(name for text in texts for name in method.findall(text))


def assigned_methods(tree: ast.Module) -> Iterator[str]:
    """Yields every assignment of a function to what may be a method of an object: `made.sample = wrapped(made.sample)`.

    A function is a name of this file's functions, or what is made from the attribute that is assigned. Names that
    `setattr` computes may be any.
    """
    functions = {node.name for node in ast.walk(tree) if isinstance(node, Function)}
    for node in ast.walk(tree):
        pairs: list[tuple[str, str, ast.AST]] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                is_pairwise = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                both = zip(target.elts, node.value.elts, strict=False) if is_pairwise else [(target, node.value)]  # pyright: ignore
                pairs += [(ast.unparse(t), t.attr, v) for t, v in both if isinstance(t, ast.Attribute)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
            pairs = [(ast.unparse(node), ast.unparse(node.args[1]).strip("'"), node.args[2])]
        for text, attribute, value in pairs:
            names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
            reads = {part.attr for part in ast.walk(value) if isinstance(part, ast.Attribute)}
            is_call = isinstance(value, ast.Call) and attribute in reads
            if not is_call and not (isinstance(value, ast.Name) and value.id in functions) and "function" not in names:
                continue
            if attribute in _verl_methods() or text.startswith("setattr"):
                yield text


def is_verl(module: str) -> bool:
    """Tells whether a module is verl's."""
    return module.split(".")[0] == "verl"


def _names_one_of(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast":
        node = node.args[1]
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _kind(tree: ast.Module, node: ast.AST) -> str:
    """Returns which function of `verl.patching` a node calls; empty for none."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return name if name in _imported(tree) else ""


@functools.cache
def _imported(tree: ast.Module) -> set[str]:
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "verl_agentic.verl.patching"
        for alias in node.names
    }


def _declared(tree: ast.Module, call: ast.AST, function: Function | None) -> Iterator[DeclaredPatch]:
    assert isinstance(call, ast.Call)
    kind = _kind(tree, call)
    root, *path = ast.unparse(call.args[0]).split(".")
    owner = bindings(tree).get(root)
    if owner is None:  # of Ray, or our own
        return
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    versions = given.get("versions", ast.Constant(""))
    assert isinstance(versions, ast.Constant), ast.unparse(call)
    for name in call.args[1:] if kind == "wrap" else call.args[1:2]:
        assert isinstance(name, ast.Constant), ast.unparse(call)
        parts = ".".join([*path, str(name.value)])
        symbol = f"{owner}{parts}" if owner.endswith(":") else f"{owner}.{parts}"
        parameters = function and _parameters(function.args, skip=int(kind == "wrap"))
        yield DeclaredPatch(symbol, kind, parameters, str(versions.value))


def _parameters(arguments: ast.arguments, *, skip: int) -> str:
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][skip:]
    if arguments.vararg or arguments.kwonlyargs:
        names.append(f"*{arguments.vararg.arg}" if arguments.vararg else "*")
    names += [argument.arg for argument in arguments.kwonlyargs]
    return ", ".join(names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else []))


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
