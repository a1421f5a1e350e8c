"""BrowserGym: WebArena, WorkArena, VisualWebArena and others, as text, by their ids."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .rows import make_rows

CARD = EnvCard(
    kind="web",
    size="of each benchmark",
    licence="of each benchmark",
    needs="a BrowserGym package such as `browsergym-webarena`, and the sites of its benchmark",
)
__all__ = ["CARD", "make_env", "make_rows"]
