"""Patches verl: its trainer sets the sampling temperature of each step, and has a circuit breaker.

Wraps `step` and `_build_replay_buffer` of `PPOTrainer`.

`agentic.temperature_schedule` changes the sampling temperature of rollouts, so it must also change
`rollout.temperature`, with which the trainer computes log-probs. `agentic.max_void_share` (default 0.5)
stops a run if more of its last episodes are void.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.rollout.rollout_features import circuit_breaker, loop_settings
from verl_agentic.verl.sections import AGENTIC


@wrap(PPOTrainer, "step")
def _step_with_temperature(step: Any, self: Any, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
    if OmegaConf.select(self.config, f"{AGENTIC}.temperature_schedule") is not None:
        schedule = loop_settings(self.config).temperature_schedule
        assert schedule is not None
        temperature = schedule.at(self.global_steps)
        with open_dict(self.config):
            self.config.actor_rollout_ref.rollout.temperature = temperature
        metrics["episode/temperature"] = temperature
    return step(self, metrics, timing_raw)


@wrap(PPOTrainer, "_build_replay_buffer")
def _build_with_breaker(build: Any, self: Any) -> Any:
    buffer = build(self)
    state_of(buffer).group_rewards = buffer.make_group_rewards(self.config)
    state_of(buffer).breaker = circuit_breaker(self.config)
    return buffer
