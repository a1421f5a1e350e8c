"""Stops `main_ppo` before it starts Ray when the configuration asks for something of ours that did not load."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_agentic.errors import ConfigError

RESOLVER = "verl_agentic"
_CPU = ("cpu.platform", "cpu.distributed", "cpu.engine")


def install_resolver(check: Callable[[], None]) -> None:
    """Makes `${verl_agentic:required}` resolve when `check` passes.

    A recipe that holds this interpolation cannot start without the plugin, not even when nothing of it was installed:
    OmegaConf then knows no such resolver, and says so.
    """

    def required(what: str) -> str:
        check()
        return what

    OmegaConf.register_new_resolver(RESOLVER, required, replace=True)


def install_validation(load: Callable[[list[str]], None]) -> None:
    """Makes verl's `validate_config` call `load` with the adapters that a configuration needs; it may raise."""
    from verl.utils import config as verl_config

    validate_config = verl_config.validate_config

    @functools.wraps(validate_config)
    def validate(config: Any, *args: Any, **kwargs: Any) -> Any:
        _check_platform(config)
        load(demanded(config))
        return validate_config(config, *args, **kwargs)

    verl_config.validate_config = validate


def _check_platform(config: DictConfig) -> None:
    wants_cpu = OmegaConf.select(config, "trainer.device") == "cpu"
    chosen = os.environ.get("VERL_PLATFORM", "")
    if wants_cpu and chosen.strip().lower() != "cpu":
        raise ConfigError(
            f"trainer.device=cpu needs the platform cpu, got VERL_PLATFORM={chosen!r}; export VERL_PLATFORM=cpu"
        )


def demanded(config: DictConfig) -> list[str]:
    """Returns the adapters that a configuration and the environment ask for."""
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    sampler = OmegaConf.select(config, "trainer.v1.sampler.sampler_kwargs") or {}
    asked = {
        "rollout_names": rollout.get("name") == "agentic",
        "agent_loop": _is_env_agent(rollout),
        "checkpoint_engine": (rollout.get("checkpoint_engine") or {}).get("backend") == "object_store",
        "shuffled_rewards": OmegaConf.select(config, "algorithm.adv_estimator") == "grpo_shuffled",
        "replay_buffer": sampler.get("poll_interval_s") is not None,
        **dict.fromkeys(_CPU, os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _is_env_agent(rollout: Any) -> bool:
    agent = rollout.get("agent") or {}
    return agent.get("default_agent_loop") == "env_agent" or "agentic" in (rollout.get("custom") or {})
