"""Environments on AgentGym servers (TextCraft, BabyAI, SciWorld, WebShop, ...), over HTTP: one tool, `act`."""

from verl_agentic.base.env_card import EnvCard
from verl_agentic.bridges.agentgym.env import make_env, make_rows
from verl_agentic.bridges.agentgym.wires import WIRES

CARD = EnvCard(
    kind="servers",
    size="the server's",
    licence="the server's",
    extra="agentgym",
    needs="an AgentGym environment server",
    tasks=tuple(WIRES),
)
__all__ = ["CARD", "make_env", "make_rows"]
