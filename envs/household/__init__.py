"""A household in text: find things, clean, heat or cool them, and put them where they belong."""

from verl_agentic.base.env_card import EnvCard

from .env import demonstrator, gold, make_env
from .house_maker import KINDS
from .rows import make_rows

CARD = EnvCard(kind="household", size="unlimited, 6 kinds of tasks", tasks=tuple(KINDS))
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
