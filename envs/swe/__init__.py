"""Software engineering: fix an issue in a repository; hidden tests decide."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="software engineering", size="6 sample tasks; more by `verl-agentic swe`")
__all__ = ["CARD", "gold", "make_env", "make_rows"]
