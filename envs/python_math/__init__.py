"""Multiplications of large numbers, with a `python` tool."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator, gold
from .env import make_env
from .tasks import make_rows

CARD = EnvCard(kind="mathematics", size="unlimited")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
