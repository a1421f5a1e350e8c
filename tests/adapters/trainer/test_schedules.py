"""The trainer's side of a step: its log-probs have the temperature that rollouts sampled with, and a sick run stops."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta

from verl_agentic.base.errors import ConfigError, InfrastructureError
from verl_agentic.verl.replay_buffer import episode_buffer
from verl_agentic.verl.trainer import schedules


class Trainer:
    def __init__(self, step: int, **agentic: Any) -> None:
        rollout = {"temperature": 1.0, "custom": {"agentic": agentic}}
        self.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
        OmegaConf.set_struct(self.config, True)
        self.global_steps = step

    @property
    def temperature(self) -> float:
        return self.config.actor_rollout_ref.rollout.temperature


def step_of(trainer: Trainer) -> tuple[float, dict[str, Any]]:
    metrics: dict[str, Any] = {}
    seen = schedules._step_with_temperature(lambda self, metrics, timing_raw: self.temperature, trainer, metrics, {})
    return seen, metrics


@pytest.mark.parametrize(("step", "temperature"), [(0, 1.2), (25, 1.075), (50, 0.95), (100, 0.7), (150, 0.7)])
def test_a_step_computes_its_log_probs_at_the_temperature_of_the_schedule(step: int, temperature: float) -> None:
    trainer = Trainer(step, temperature_schedule={"start": 1.2, "end": 0.7, "steps": 100})
    seen, metrics = step_of(trainer)
    assert seen == pytest.approx(temperature)
    assert metrics == {"episode/temperature": pytest.approx(temperature)}


def test_without_a_schedule_the_temperature_is_verls() -> None:
    assert step_of(Trainer(3)) == (1.0, {})


class Buffer:
    @staticmethod
    def make_group_rewards(config: Any) -> None:
        """Replaces the method that another adapter adds to verl's buffer: nothing here sees groups."""


def built(**agentic: Any) -> Any:
    return schedules._build_with_breaker(lambda self: Buffer(), Trainer(1, **agentic))


def sample(buffer: Any, monkeypatch: pytest.MonkeyPatch, voids: list[float], partition: str = "train") -> None:
    extra = [
        {"reward_extra_info": {"void": v}, "error": "SandboxError: gone" if v else "", "stop_reason": "x"}
        for v in voids
    ]
    monkeypatch.setattr(episode_buffer, "_fetch_episodes", lambda keys, partition_id: dict(enumerate(extra)))

    batch = KVBatchMeta()
    episode_buffer._sample_with_numbers(lambda self, *args: (batch, {}), buffer, 1, partition, len(voids))


def test_a_run_stops_when_most_of_its_episodes_are_void_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = built()
    sample(buffer, monkeypatch, [0.0] * 16 + [1.0] * 16)
    with pytest.raises(InfrastructureError, match="52%"):
        sample(buffer, monkeypatch, [1.0])


def test_the_share_is_the_configured_one_and_validation_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    sample(built(max_void_share=0.75), monkeypatch, [0.0] * 9 + [1.0] * 23)
    sample(built(), monkeypatch, [1.0] * 64, "val")
    with pytest.raises(InfrastructureError):
        sample(built(max_void_share=0.7), monkeypatch, [0.0] * 9 + [1.0] * 23)
    with pytest.raises(ConfigError, match="max_void_share"):
        built(max_void_share=2)
