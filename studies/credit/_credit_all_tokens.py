"""An ablation: the observation mask is off, and observations are trained on as if the policy had written them.

verl loads this module in every process, ahead of its plugins (`VERL_USE_EXTERNAL_MODULES`).
"""

from __future__ import annotations

import importlib
from typing import Any

from verl_agentic.verl.import_hooks import when_imported


def _unmask() -> None:
    output = importlib.import_module("verl_agentic.verl.rollout.agent_loop").EnvAgentOutput
    as_dict = output.as_dict

    def unmasked(self: Any) -> dict[str, Any]:
        columns = as_dict(self)
        if columns["response_mask"].any():  # void rows stay void
            columns["response_mask"] = columns["response_mask"].new_ones(columns["response_mask"].shape)
        return columns

    output.as_dict = unmasked


when_imported("verl_agentic.verl.rollout.agent_loop", _unmask)
