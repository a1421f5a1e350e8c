"""An online shop: search a catalogue, compare products, choose options, and buy what the instruction asks for."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="web", size="unlimited, 1,080 products; WebShop's files", extra="search")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
