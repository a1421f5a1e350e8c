"""Single-player games of GEM: numbers, codes and sudoku."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import demonstrator, gold, make_env, make_rows

CARD = EnvCard(
    kind="games", size="unlimited", licence="Apache-2.0", extra="gem", tasks=read_tasks(__file__), max_scripted=0.75
)
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
