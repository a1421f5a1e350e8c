"""Questions that a router answers by asking other language models, each with its own skills and price."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="routing", size="18,000 questions, 4 scripted models offline")
__all__ = ["CARD", "gold", "make_env", "make_rows"]
