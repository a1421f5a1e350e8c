"""Software engineering: fix an issue in a repository; hidden tests decide."""

from .env import make_env
from .gold import gold
from .rows import make_rows

__all__ = ["gold", "make_env", "make_rows"]
