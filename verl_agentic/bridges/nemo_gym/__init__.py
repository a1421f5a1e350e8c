"""Tasks of NeMo-Gym resources servers, over HTTP: their rows, their tools and their verifier."""

from verl_agentic.base.env_card import EnvCard
from verl_agentic.bridges.nemo_gym.env import make_env
from verl_agentic.bridges.nemo_gym.rows import make_rows

CARD = EnvCard(
    kind="servers",
    size="the server's",
    licence="the server's",
    extra="nemo_gym",
    needs="a NeMo-Gym resources server and its JSONL of tasks",
)
__all__ = ["CARD", "make_env", "make_rows"]
