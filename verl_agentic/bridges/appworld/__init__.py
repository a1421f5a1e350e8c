"""AppWorld: tasks over the APIs of apps, which the policy solves by Python code, on AppWorld's environment servers."""

from verl_agentic.base.env_card import EnvCard
from verl_agentic.bridges.appworld.env import make_env, make_rows

CARD = EnvCard(
    kind="servers",
    size="the data's",
    licence="yours",
    extra="appworld",
    needs="AppWorld's data and servers: `appworld download data`, `appworld serve environment --port 8000`",
)
__all__ = ["CARD", "make_env", "make_rows"]
