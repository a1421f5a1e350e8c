"""Questions that need one or two searches in a corpus that a model cannot know."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="search", size="unlimited, four offline corpora", extra="search")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
