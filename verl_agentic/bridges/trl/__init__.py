"""Environments, tools and reward functions written for TRL's GRPOTrainer, unchanged; TRL itself is not needed."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .rows import gold, make_rows, rows_of

CARD = EnvCard(kind="adapters", size="unlimited example rows; any environment for TRL with rows of yours")
__all__ = ["CARD", "gold", "make_env", "make_rows", "rows_of"]
