"""A support desk: tools on a database, a policy to follow, and a simulated customer to talk to."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="tools", size="unlimited, 2 domains; tau2's retail, airline and telecom")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
