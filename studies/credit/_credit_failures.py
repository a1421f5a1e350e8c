"""Sandboxes that are lost: each of the policy's calls, while it trains, has a chance to meet one.

Who calls more fails more, through no fault of the policy: the failures go with what must be learned. Episodes that met
one are void, as any whose environment failed. verl loads this module in every process, ahead of its plugins
(`VERL_USE_EXTERNAL_MODULES`).
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any

from verl_agentic.base.errors import SandboxError
from verl_agentic.verl.import_hooks import when_imported

RATE = 0.6
"""Chance of a turn with calls; after SFT about two of five episodes call the tool, so that a quarter of all fail."""


def _lose_sandboxes() -> None:
    loop: Any = importlib.import_module("verl_agentic.verl.rollout.agent_loop")
    load_env = loop.load_env

    def load(env_id: str) -> Callable[..., Any]:
        make_env = load_env(env_id)

        def make(*args: Any, **kwargs: Any) -> Any:
            env = make_env(*args, **kwargs)
            step = env.step

            async def failing(action: Any) -> Any:
                if action.tool_calls and random.random() < RATE:
                    raise SandboxError("the benchmark has taken the sandbox away")
                return await step(action)

            env.step = failing
            return env

        return make

    loop.load_env = load


when_imported("verl_agentic.verl.rollout.agent_loop", _lose_sandboxes)
