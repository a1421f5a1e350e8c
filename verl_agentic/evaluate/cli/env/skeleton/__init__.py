"""A store whose stock must be looked up: a complete environment to start from."""

from .env import make_env
from .gold import gold
from .rows import make_rows

__all__ = ["gold", "make_env", "make_rows"]
