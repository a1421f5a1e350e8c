"""Any environment in a server of its own: `verl-agentic env serve ENV` on one side, `RemoteEnv` on the other."""

from verl_agentic.base.env_card import EnvCard
from verl_agentic.bridges.remote.package import describe, gold, make_env, make_rows

CARD = EnvCard(
    kind="servers",
    size="the server's",
    licence="the server's",
    extra="remote",
    needs="a server: `verl-agentic env serve ENV`",
)
__all__ = ["CARD", "describe", "gold", "make_env", "make_rows"]
