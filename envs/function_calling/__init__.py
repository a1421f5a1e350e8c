"""Function calling: each row has tools as JSON schemas, a request, and the expected calls, if any."""

from verl_agentic.base.env_card import EnvCard

from .bfcl import from_bfcl
from .env import make_env
from .gold import gold
from .rows import make_rows
from .toolrl import from_toolrl

CARD = EnvCard(kind="function calling", size="unlimited, 12 APIs; reads BFCL and ToolRL files")
__all__ = ["CARD", "from_bfcl", "from_toolrl", "gold", "make_env", "make_rows"]
