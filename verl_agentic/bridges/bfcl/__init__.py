"""BFCL v4 multi-turn: users ask for several things in turn, and stateful APIs carry them out; needs `bfcl-eval`."""

from verl_agentic.env_card import EnvCard, read_tasks

from .env import make_env
from .rows import gold, make_rows

CARD = EnvCard(
    family="function calling",
    size="795 rows in 4 categories",
    extra="bfcl",
    needs="`pip install --no-deps bfcl-eval`",
    tasks=read_tasks(__file__),
)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
