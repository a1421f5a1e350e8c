"""Functions that are found by name: one a file, in a package of their own, the file named like the function."""

from __future__ import annotations

import importlib
from importlib.resources import files
from typing import Any


def names_in(package: str) -> list[str]:
    """Returns the names of the functions of a package."""
    names = (entry.name for entry in files(package).iterdir())
    return sorted(name.removesuffix(".py") for name in names if name.endswith(".py") and not name.startswith("_"))


def load_from(package: str, name: str) -> Any:
    """Returns a function of a package; it must be there."""
    return getattr(importlib.import_module(f"{package}.{name}"), name)
