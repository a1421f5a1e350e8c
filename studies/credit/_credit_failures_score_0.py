"""An ablation, beside `_credit_failures`: an episode that lost its sandbox earns 0 instead of being taken out.

verl loads this module in every process, ahead of its plugins (`VERL_USE_EXTERNAL_MODULES`).
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from verl_agentic.base.types import Reward, SegmentKind, StopReason
from verl_agentic.verl.import_hooks import when_imported


def _score_0() -> None:
    loop: Any = importlib.import_module("verl_agentic.verl.rollout.agent_loop")
    run_episode = loop.run_episode

    async def run(*args: Any, **kwargs: Any) -> Any:
        episode = await run_episode(*args, **kwargs)
        if not episode.is_void:
            return episode
        for row in episode.trajectories:
            row.response_mask = [int(kind is SegmentKind.MODEL) for kind in row.kinds]
            row.trim_context()
        return dataclasses.replace(
            episode, stop_reason=StopReason.ENV_DONE, reward=Reward(0.0), error=None, error_kind=None
        )

    loop.run_episode = run


when_imported("verl_agentic.verl.rollout.agent_loop", _score_0)
