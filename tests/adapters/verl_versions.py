"""Versions of verl that a test is for."""

from __future__ import annotations

import pytest
import verl
from packaging.specifiers import SpecifierSet

AFTER_MAIN = ">=0.9.1,!=0.10.0.dev0"
"""Leaves out snapshots of verl's main branch too: their version is later, but they lack a part of what 0.9.1 has."""


def is_meant(versions: str) -> bool:
    """Tells whether the installed verl is one of some versions; an empty specifier means all."""
    return SpecifierSet(versions).contains(verl.__version__, prereleases=True)


def needs_verl(versions: str, lacks: str) -> pytest.MarkDecorator:
    """Limits a test to the versions of verl that have what it needs.

    Args:
        versions: as a specifier.
        lacks: what other versions lack.
    """
    return pytest.mark.skipif(not is_meant(versions), reason=f"verl {verl.__version__} lacks {lacks}")
