"""Find the files and lines of a repository that a question is about, with grep, glob and read."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import make_rows
from .trees import check_row

CARD = EnvCard(kind="software engineering", size="unlimited, from installed packages", licence="of each package")
__all__ = ["CARD", "check_row", "gold", "make_env", "make_rows"]
