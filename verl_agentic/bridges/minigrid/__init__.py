"""Levels of BabyAI and MiniGrid in words, with an expert."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import demonstrator, gold, make_env, make_rows

CARD = EnvCard(
    kind="instruction following",
    size="unlimited",
    licence="Apache-2.0",
    extra="minigrid",
    tasks=read_tasks(__file__),
    max_scripted=0.5,
)
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
