"""Functions that are found by name: one a file, in a package of their own, the file named like the function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from verl_agentic.errors import ConfigError


def names_in(package: str) -> list[str]:
    """Returns the names of the functions of a package."""
    names = (entry.name for entry in files(package).iterdir())
    return sorted(name.removesuffix(".py") for name in names if name.endswith(".py") and not name.startswith("_"))


def load_from(package: str, name: str) -> Any:
    """Returns a function of a package; it must be there."""
    return getattr(importlib.import_module(f"{package}.{name}"), name)


def check_options(function: Callable[..., Any], options: Mapping[str, Any], *, what: str) -> None:
    """Raises when a function has no such keyword-only parameters.

    Args:
        function: takes its options by keyword.
        options: what is to be given.
        what: names the function in the error.

    Raises:
        ConfigError: naming what it has.
    """
    known = [name for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY]
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(f"{what} has no options {unknown}; it has {sorted(known)}")
