"""Environments on OpenEnv servers, over their WebSocket: actions and tools become tools of the policy."""

from verl_agentic.base.env_card import EnvCard
from verl_agentic.bridges.openenv.env import make_env, make_rows

CARD = EnvCard(kind="servers", size="the server's", licence="the server's", extra="openenv", needs="an OpenEnv server")
__all__ = ["CARD", "make_env", "make_rows"]
