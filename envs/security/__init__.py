"""Security: find, exploit or fix the weakness of a small generated module, in a sandbox."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import KINDS, make_rows

CARD = EnvCard(kind="security", size="unlimited, 8 families of weaknesses", tasks=KINDS)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
