"""Fix an issue in one turn with search/replace edits of the shown parts of a repository."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .gold import gold
from .rows import check_row, make_rows

CARD = EnvCard(kind="software engineering", size="6 sample tasks; more by `verl-agentic swe`")
__all__ = ["CARD", "check_row", "gold", "make_env", "make_rows"]
