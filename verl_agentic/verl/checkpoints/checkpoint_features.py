"""The adapters of checkpoints."""

from __future__ import annotations

from typing import Any

from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.sections import AGENTIC, plain_section


def _needs_healthy_checkpoints(config: Any) -> bool:
    actions = plain_section(config, f"{AGENTIC}.health.actions") or {}
    return bool({"stop", "rollback"} & set(map(str, actions.values())))


FEATURES = Features(
    adapters=(
        Adapter(
            module="checkpoints.checkpoint_retention",
            needs="verl.utils.checkpoint.checkpoint_manager",
            gives="healthy checkpoints that stay",
            chosen_by="agentic.health.actions (stop, rollback)",
            demanded_by=_needs_healthy_checkpoints,
        ),
        Adapter(
            module="checkpoints.epoch_boundary",
            needs="verl.utils.checkpoint.checkpoint_handler",
            gives="supervised and offline training that skips no epoch after a resume",
            chosen_by="always",
        ),
    ),
)
