"""Tools of any MCP server, over stdio or streamable HTTP; the examples ask about the stock of a demo server."""

from verl_agentic.base.env_card import EnvCard

from .env import make_env
from .rows import gold, make_rows

CARD = EnvCard(kind="tools", size="unlimited; any MCP server with rows of yours", extra="mcp")
__all__ = ["CARD", "gold", "make_env", "make_rows"]
