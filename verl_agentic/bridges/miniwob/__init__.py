"""MiniWoB++: small web pages in a real Chromium, read as an accessibility tree."""

from verl_agentic.base.env_card import EnvCard, read_tasks

from .env import make_env
from .gold import gold
from .rows import make_rows

CARD = EnvCard(
    kind="web",
    size="unlimited, by seed",
    licence="MIT",
    extra="miniwob",
    needs="Chromium (Debian: `apt install chromium`; elsewhere: `playwright install chromium`)",
    tasks=read_tasks(__file__),
)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
