"""Research in linked pages: search, open and find, until a chain of described things leads to a short answer."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="search", size="unlimited, 860 pages; GAIA's and BrowseComp's files", extra="search")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
