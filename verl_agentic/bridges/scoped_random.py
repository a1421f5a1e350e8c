"""Gives every episode of a foreign package random numbers of its own.

Some packages of games seed and use Python's global generator, which parallel episodes and the trainer share. Their
modules get a fake of the module `random`, which passes calls to the generator of the running game, and a silent
`print`.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

_generator: ContextVar[random.Random | None] = ContextVar("scoped_random_generator", default=None)


class _ScopedRandom:
    """The module `random`, with the functions of the generator in use."""

    def __getattr__(self, name: str) -> Any:
        generator = _generator.get()
        return getattr(random if generator is None or not hasattr(generator, name) else generator, name)


_SCOPED = _ScopedRandom()


@contextlib.contextmanager
def drawing_from(generator: random.Random, *, package: str) -> Iterator[None]:
    """Lets the modules of a package draw from a generator while the block runs, in this thread or task."""
    _patch_package(package)
    token = _generator.set(generator)
    try:
        yield
    finally:
        _generator.reset(token)


def silence(package: str) -> None:
    """Gives the imported modules of a package a `print` that prints nothing."""
    for module in _list_modules(package):
        vars(module)["print"] = _print_nothing


_patched: dict[str, int] = {}
"""Package -> number of modules in the process when it was patched: others may have been imported since."""


def _patch_package(package: str) -> None:
    if _patched.get(package) == len(sys.modules):
        return
    silence(package)
    for module in _list_modules(package):
        if vars(module).get("random") is random:
            vars(module)["random"] = _SCOPED
    _patched[package] = len(sys.modules)


def _list_modules(package: str) -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(f"{package}.")]


def _print_nothing(*values: object, **options: object) -> None:
    """Prints nothing."""
