"""Tasksets and environments of the package `verifiers`, which runs and scores them itself; by default a guessing game.

See `docs/bridges.md`.
"""

from verl_agentic.base.env_card import EnvCard
from verl_agentic.bridges.verifiers.env import make_env
from verl_agentic.bridges.verifiers.rows import gold, make_rows

CARD = EnvCard(
    kind="adapters", size="1,000 example rows; any installed taskset", licence="the taskset's", extra="verifiers"
)
__all__ = ["CARD", "gold", "make_env", "make_rows"]
