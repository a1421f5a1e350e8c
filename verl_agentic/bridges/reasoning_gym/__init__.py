"""Puzzles, mathematics and logic from the generators of reasoning-gym, one answer each."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import gold, make_env
from .rows import make_rows

CARD = EnvCard(
    kind="reasoning",
    size="unlimited",
    licence="Apache-2.0",
    extra="reasoning_gym",
    tasks=read_tasks(__file__),
    max_scripted=0.75,
)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
