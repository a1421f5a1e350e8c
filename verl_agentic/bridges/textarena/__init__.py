"""Games of TextArena: alone, or against an opponent that blocks and makes random legal moves."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import demonstrator, gold, make_env, make_rows

CARD = EnvCard(
    kind="games", size="unlimited", licence="MIT", extra="textarena", tasks=read_tasks(__file__), max_scripted=0.5
)
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
