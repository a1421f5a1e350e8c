"""Code with tests: write a program, run the public tests, fix it; hidden tests score it."""

from .env import make_env
from .gold import gold
from .rows import make_rows

__all__ = ["gold", "make_env", "make_rows"]
