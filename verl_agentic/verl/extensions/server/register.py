"""Registers the rollout backend `agentic` in verl's two registries by name, so that it is loaded only when chosen."""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

NAME = "agentic"


def _load_replica() -> Any:
    from verl_agentic.verl.extensions.server.replica import AgenticReplica

    return AgenticReplica


_ROLLOUT_REGISTRY[(NAME, "async")] = "verl_agentic.verl.extensions.server.replica.ServerAdapter"
RolloutReplicaRegistry.register(NAME, _load_replica)
