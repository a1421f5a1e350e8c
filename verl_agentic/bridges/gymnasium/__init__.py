"""The toy problems of gymnasium in words: frozen lakes, a cliff, a taxi, and blackjack."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import demonstrator, gold, make_env, make_rows

CARD = EnvCard(
    kind="games", size="unlimited", licence="MIT", extra="gymnasium", tasks=read_tasks(__file__), max_scripted=0.5
)
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
