"""What verl's trainer does at each step for us: the sampling temperature of the step, and the circuit breaker.

The trainer computes log-probs with `rollout.temperature`; while `rollout.custom.agentic.temperature_schedule` changes
what rollouts sample with, it must change that, too. `rollout.custom.agentic.max_void_share` (default 0.5) stops a run
when more of its last episodes are void.
"""

from __future__ import annotations

import functools
from typing import Any

from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.adapters.rollout.rollout_sections import circuit_breaker, loop_settings
from verl_agentic.adapters.sections import AGENTIC


def _step(original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
        if OmegaConf.select(self.config, f"{AGENTIC}.temperature_schedule") is not None:
            schedule = loop_settings(self.config).temperature
            assert schedule is not None
            temperature = schedule.at(self.global_steps)
            with open_dict(self.config):
                self.config.actor_rollout_ref.rollout.temperature = temperature
            metrics["episode/temperature"] = temperature
        return original(self, metrics, timing_raw)

    return step


def _build_replay_buffer(original: Any) -> Any:
    @functools.wraps(original)
    def build(self: Any) -> Any:
        buffer = original(self)
        buffer.group_rewards = buffer.make_group_rewards(self.config)
        buffer.breaker = circuit_breaker(self.config)
        return buffer

    return build


PPOTrainer.step = _step(PPOTrainer.step)
PPOTrainer._build_replay_buffer = _build_replay_buffer(PPOTrainer._build_replay_buffer)
