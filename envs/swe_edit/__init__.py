"""Fix an issue in one turn with search/replace edits of the shown parts of a repository."""

from .env import make_env
from .gold import gold
from .rows import make_rows

__all__ = ["gold", "make_env", "make_rows"]
