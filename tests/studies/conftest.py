"""Makes the modules of the studies importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def studies_on_path() -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [str(_ROOT / "benchmarks"), *map(str, (_ROOT / "studies").iterdir())]
    yield
    sys.path[:] = before
