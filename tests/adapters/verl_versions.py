"""Versions of verl that a test is for."""

from __future__ import annotations

import verl
from packaging.specifiers import SpecifierSet


def is_meant(versions: str) -> bool:
    """Tells whether the installed verl is one of some versions; an empty specifier means all."""
    return SpecifierSet(versions).contains(verl.__version__, prereleases=True)
