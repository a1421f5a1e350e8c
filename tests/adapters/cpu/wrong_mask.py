"""A broken agent loop: observations get mask 1. verl loads it in every process, ahead of its plugins."""

from __future__ import annotations

import functools
from typing import Any

import torch

from verl_agentic.verl.import_hooks import when_imported


def _break() -> None:
    from verl_agentic.verl.rollout.agent_loop import EnvAgentOutput

    original = EnvAgentOutput.as_dict

    @functools.wraps(original)
    def as_dict(self: Any) -> dict[str, Any]:
        columns = original(self)
        columns["response_mask"] = torch.ones_like(columns["response_mask"])
        return columns

    EnvAgentOutput.as_dict = as_dict


when_imported("verl_agentic.verl.rollout.agent_loop", _break)
