"""Everyday questions about words, numbers and dates that a small language model cannot answer without Python."""

from verl_agentic.base.env_card import EnvCard

from .demos import demonstrator, gold
from .env import make_env
from .rows import make_rows

# Constant answers meet some counts of letters and one of seven weekdays.
CARD = EnvCard(kind="mathematics", size="unlimited, 9 kinds of questions", max_scripted=0.15)
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
