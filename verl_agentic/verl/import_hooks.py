"""Runs a function as soon as a module of verl has been imported, without importing it.

The plugin is loaded in every process of a cluster, and most need a fraction of verl: registering by importing would
cost each of them seconds.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_pending: dict[str, list[Callable[[], None]]] = {}


def when_imported(module: str, function: Callable[[], None]) -> None:
    """Calls `function` once `module` has been executed: at once, when it has been imported already.

    The functions of a module are called in the order they were given, before its importer sees it.
    """
    if module in sys.modules:
        # Should it still be executing, then a function that needs more of it fails aloud, which is better than never.
        function()
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _pending.setdefault(module, []).append(function)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the other finders find a module that is waited for, and wraps its loader."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _pending or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        # runpy and inspect ask a loader for code and source.
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader  # resources and pickles see the module as it is
        for function in _pending.pop(module.__name__, ()):
            function()


_FINDER = _Finder()
