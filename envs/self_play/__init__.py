"""Self-play: the policy proposes programs or questions of maths, and copies of it try to solve them."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import TASKS, make_rows

CARD = EnvCard(kind="self-play", size="unlimited", tasks=TASKS)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
