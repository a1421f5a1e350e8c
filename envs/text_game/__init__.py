"""Text games with seeds: FrozenLake, Sokoban, and quests in a house of rooms, doors and keys."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .hindsight import describe
from .rows import make_rows

CARD = EnvCard(kind="games", size="unlimited, 4 games")
__all__ = ["CARD", "demonstrator", "describe", "gold", "make_env", "make_rows"]
