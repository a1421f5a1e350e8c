"""Multiplications of large numbers, with a `python` tool."""

from .demos import demonstrator, gold
from .env import make_env
from .tasks import make_rows

__all__ = ["demonstrator", "gold", "make_env", "make_rows"]
