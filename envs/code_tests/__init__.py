"""Code with tests: write a program, run the public tests, fix it; hidden tests score it."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(kind="code", size="unlimited, 6 families of problems")
__all__ = ["CARD", "gold", "make_env", "make_rows"]
