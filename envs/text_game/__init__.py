"""Text games with seeds: FrozenLake, Sokoban, and quests in a house of rooms, doors and keys."""

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .hindsight import describe
from .rows import make_rows

__all__ = ["demonstrator", "describe", "gold", "make_env", "make_rows"]
