"""Facts about the modules, classes and functions of Python's standard library, parsed from its sources."""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_agentic.tools.search.retriever import Passage

_LEFT_OUT = frozenset({"test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data", "antigravity"})
_MAX_DOC_CHARS = 500
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class ModuleDoc:
    """A module with a docstring."""

    name: str
    doc: str

    def passage(self) -> Passage:
        """Returns what the corpus says of it."""
        return Passage(title=self.name, text=f"The Python module {self.name}. {self.doc}", id=f"module:{self.name}")


@dataclass(frozen=True, kw_only=True)
class ClassDoc:
    """A public class."""

    name: str
    module: str
    bases: tuple[str, ...]
    """Names of its bases, without modules."""
    doc: str

    @property
    def passage_id(self) -> str:
        """Id of its passage."""
        return f"class:{self.module}.{self.name}"

    def passage(self) -> Passage:
        """Returns what the corpus says of it. The module of a base class is only in the base's own passage."""
        bases = f" It is derived from {' and '.join(self.bases)}." if self.bases else ""
        text = f"The Python class {self.name} is defined in the module {self.module}.{bases} {self.doc}"
        return Passage(title=self.name, text=text.strip(), id=self.passage_id)


@dataclass(frozen=True, kw_only=True)
class FunctionDoc:
    """A public function, or a method of a public class."""

    name: str
    """Qualified name, such as `dumps` or `Queue.put`."""
    module: str
    parameters: tuple[str, ...]
    defaults: dict[str, str]
    """Parameter -> default value, as Python writes it."""
    doc: str

    @property
    def passage_id(self) -> str:
        """Id of its passage."""
        return f"function:{self.module}.{self.name}"

    def passage(self) -> Passage:
        """Returns what the corpus says of it."""
        texts = [f"{p} (default {self.defaults[p]})" if p in self.defaults else p for p in self.parameters]
        parameters = f" Its parameters are {', '.join(texts)}." if texts else ""
        kind = "method" if "." in self.name else "function"
        text = f"The Python {kind} {self.name} of the module {self.module}.{parameters} {self.doc}"
        return Passage(title=f"{self.module}.{self.name}", text=text.strip(), id=self.passage_id)


PythonDoc = ModuleDoc | ClassDoc | FunctionDoc


def read_standard_library() -> list[PythonDoc]:
    """Returns the documented items of the public modules, in the order of their names."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [doc for name, path in _iter_modules(root) for doc in read_module(name, path.read_bytes())]


def read_module(name: str, source: bytes) -> Iterator[PythonDoc]:
    """Yields the module if it is documented, and its public classes, methods and functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in old sources
        tree = ast.parse(source)
    if ast.get_docstring(tree):
        yield ModuleDoc(name=name, doc=_read_doc(tree))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield ClassDoc(name=node.name, module=name, bases=_read_bases(node), doc=_read_doc(node))
            for part in node.body:
                if isinstance(part, _Function) and (not part.name.startswith("_") or part.name == "__init__"):
                    yield _read_function(part, f"{node.name}.{part.name}", module=name)
        elif isinstance(node, _Function) and not node.name.startswith("_"):
            yield _read_function(node, node.name, module=name)


def _iter_modules(root: Path) -> Iterator[tuple[str, Path]]:
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in _LEFT_OUT:
            continue
        paths = [root / f"{name}.py", *sorted((root / name).rglob("*.py"))]
        for path in paths:
            parts = path.relative_to(root).with_suffix("").parts
            if path.is_file() and not _LEFT_OUT & set(parts) and not any(_is_private(part) for part in parts):
                yield ".".join(part for part in parts if part != "__init__"), path


def _is_private(part: str) -> bool:
    return part.startswith("_") and part != "__init__"


def _read_function(node: _Function, name: str, *, module: str) -> FunctionDoc:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(optional, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return FunctionDoc(
        name=name,
        module=module,
        parameters=tuple(a.arg for a in [*positional, *arguments.kwonlyargs] if a.arg not in ("self", "cls")),
        defaults={argument.arg: ast.unparse(default) for argument, default in pairs if default is not None},
        doc=_read_doc(node),
    )


def _read_bases(node: ast.ClassDef) -> tuple[str, ...]:
    names = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
    return tuple(name for name in names if name and name != "object")


def _read_doc(node: ast.Module | ast.ClassDef | _Function) -> str:
    """Returns the beginning of the docstring in one line."""
    text = " ".join(inspect.cleandoc(ast.get_docstring(node) or "").split())
    return text if len(text) <= _MAX_DOC_CHARS else text[:_MAX_DOC_CHARS].rpartition(" ")[0] + " ..."
