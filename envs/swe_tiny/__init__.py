"""Short functions with one wrong operator: the smallest form of `swe`, for models that learn on a laptop."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator, gold
from .env import make_env
from .rows import make_rows

CARD = EnvCard(kind="software engineering", size="unlimited")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
