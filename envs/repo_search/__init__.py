"""Find the files and lines of a repository that a question is about, with grep, glob and read."""

from .env import make_env
from .gold import gold
from .rows import make_rows

__all__ = ["gold", "make_env", "make_rows"]
