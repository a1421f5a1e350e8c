"""BFCL v4: requests for function calls, and users that ask stateful APIs for several things in turn."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import make_env
from .rows import gold, make_rows

CARD = EnvCard(
    kind="function calling",
    size="3,125 rows in 12 categories",
    extra="bfcl",
    needs="`pip install --no-deps bfcl-eval`",
    tasks=read_tasks(__file__),
)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
