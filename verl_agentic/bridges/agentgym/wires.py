"""The dialects of AgentGym's servers, which share the calls but not the names of their fields.

Read in the repository WooooDyy/AgentGym: `agentenv-NAME/agentenv_NAME/server.py` and `environment.py` or
`env_wrapper.py`, and the clients in `agentenv/agentenv/envs/`, for TextCraft, BabyAI, SciWorld, ALFWorld and WebShop.
The servers are no packages of PyPI, so none of them was run. Common facts: `POST /create` returns an id or an object
with `id`; `POST /reset` and `POST /step` take the id; failures are HTTP 200 with an object that has `error`; `POST
/close` exists in some servers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.bridges.foreign_episode import RewardOf


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Names of the fields of one server, and what its rewards mean."""

    instruction: str
    """The policy's task, before the first observation."""
    id_key: str = "id"
    task_key: str = "data_idx"
    reset: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a reset."""
    reward_key: str = "reward"
    reward_of: RewardOf = "last"
    full_reward: float = 1.0


WIRES: Mapping[str, Wire] = {
    "textcraft": Wire(
        instruction="Craft the goal item. Actions: `get N ITEM`, `craft N ITEM using N ITEM, N ITEM`, `inventory`."
    ),
    "babyai": Wire(instruction="Reach the goal of the grid world. Each observation lists the actions."),
    "sciworld": Wire(
        instruction="Do the science task. Actions are short commands, such as `look around` or `open OBJ`.",
        reward_key="score",
        full_reward=100.0,
    ),
    "alfworld": Wire(
        instruction="Do the household task with the available actions.", task_key="game", reset={"world_type": "Text"}
    ),
    "webshop": Wire(
        instruction="Buy the product that is asked for. Actions: `search[KEYWORDS]`, `click[BUTTON]`.",
        id_key="env_idx",
        task_key="session_id",
    ),
}
"""Task of the bridge -> its server."""
